"""Where hubs are kept: a folder with SQLite and a word index, or PostgreSQL."""
