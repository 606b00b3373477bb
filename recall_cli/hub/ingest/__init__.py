"""From files to chunks in a hub: find, decode, split, embed, watch."""
