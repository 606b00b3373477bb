"""Recall over a hub of documents: hybrid retrieval on the core's embedder, index and policy."""
