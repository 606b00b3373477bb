"""What tokens cost: dated prices, a price file, rates, estimated token counts."""
