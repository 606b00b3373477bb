"""Recall over a hub of documents: hybrid retrieval on the cache's embedders and indexes."""
