"""Measurements over the core: each returns a `Result` and prints nothing."""
