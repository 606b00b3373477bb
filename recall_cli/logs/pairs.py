"""The names under which the reader was first known; `read` is where it lives."""

from recall_cli.logs.from_pairs import REQUEST as REQUEST
from recall_cli.logs.read import read_log as read_log
from recall_cli.logs.read import read_logs as read_logs
from recall_cli.logs.tally import Tally as Tally
