"""Nearest-neighbour indexes over one partition's vectors: exact, compressed scan, HNSW graph."""
