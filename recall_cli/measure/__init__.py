"""Measurements over the cache: each returns a `Result` and prints nothing."""
