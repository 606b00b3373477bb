"""How the bundled weights are made."""
