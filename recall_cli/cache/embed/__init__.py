"""Embedders: text to a unit vector. `registry` makes one from its name."""
