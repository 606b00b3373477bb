"""How the bundled weights and the recorded results are made. It needs a checkout and is no part of the wheel."""
