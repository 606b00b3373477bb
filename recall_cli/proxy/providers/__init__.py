"""The dialects of the providers: bodies, streams and errors of each API."""
