"""Whether two answers say the same: a comparator, a model as judge, a second opinion on a hit."""
