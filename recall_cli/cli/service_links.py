"""Variables that are links to a network service, not settings of recall.

For a Service called `recall` Kubernetes sets variables in every pod beside it: RECALL with the endings _SERVICE_HOST,
_SERVICE_PORT and _PORT_8787_TCP, and RECALL_PORT=tcp://10.0.0.1:8787, which has the name of an option here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from typer.core import TyperOption

from recall_cli.cli.output import note

SHARED_NAME = re.compile(r"RECALL(_[A-Z0-9_]+)?_PORT")
"""What an option's variable and a link may both be called: only the value tells them apart."""
LINK_NAME = re.compile(
    r"RECALL(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""What only a link is called; a Service `recall-x` gives RECALL_X_..."""
LINK_VALUE = re.compile(r"(tcp|udp|sctp)://\S+:\d+", re.IGNORECASE)


def is_link(name: str, value: str) -> bool:
    """Return whether a variable is a link to a service."""
    return bool(LINK_NAME.fullmatch(name) or (SHARED_NAME.fullmatch(name) and LINK_VALUE.fullmatch(value.strip())))


def links(variables: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that are links, in order."""
    return sorted(name for name, value in variables.items() if is_link(name, value))


class _LinkedOption(TyperOption):
    """An option whose variable may hold a link: that is said and passed over, and any other value is the option's."""

    def resolve_envvar_value(self, ctx: Any) -> str | None:
        value = super().resolve_envvar_value(ctx)
        name = self.envvar
        if value is None or not isinstance(name, str) or not is_link(name, value):
            return value
        note(
            f"{name} is ignored: {value} is a link to a service, as Kubernetes sets one for each of its Services",
            f"give {self.opts[0]} to choose; `enableServiceLinks: false` in the pod's spec leaves such variables out",
        )
        return None


def options_of(command: Any) -> Iterator[Any]:
    """Yield the options and arguments of a command and of all commands under it."""
    yield from command.params
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def pass_over_links(command: Any) -> None:
    """Let no option of a command, or of one under it, take a link for its value."""
    for param in options_of(command):
        if isinstance(param, TyperOption) and isinstance(param.envvar, str) and SHARED_NAME.fullmatch(param.envvar):
            # typer makes the options itself, and takes no class for them.
            param.__class__ = _LinkedOption
