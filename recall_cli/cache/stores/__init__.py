"""Where entries are kept: in memory, in a SQLite file, behind a cache in memory."""
