"""Names out of a log, made fit to be shown: a log is written by others, and a terminal obeys what it is sent."""

from __future__ import annotations


def clean(name: str) -> str:
    r"""Return a name with everything unprintable written out: ESC as `\x1b`, a line end as `\n`.

    Also marks that turn the reading direction or stand for a lone surrogate, which no output can encode.
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
