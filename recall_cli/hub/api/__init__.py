"""The hub's HTTP API: access, routes, questions, writes, errors."""
