"""Policies: whether a candidate is similar enough to be served, and what a label teaches."""
