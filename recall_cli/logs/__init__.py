"""Readers of request logs: one adapter a format, each yielding `LogRecord`s."""
