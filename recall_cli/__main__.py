"""`python -m recall_cli` is `recall`."""

from recall_cli.cli.app import run

run()
