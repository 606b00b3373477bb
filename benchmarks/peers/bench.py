"""What a work is given: the arms that run here, a folder, and a way to keep what does not run as a row."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.peers.client import Peer, PeerError
from benchmarks.peers.roster import ARMS, PACKAGES, Arm, Package
from benchmarks.peers.services import SERVICES
from benchmarks.peers.venvs import VenvError, python_of

Row = dict[str, Any]
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


class Named(Protocol):
    """What is compared: an arm or a proxy."""

    @property
    def name(self) -> str:
        """What its rows are called by."""

    @property
    def package(self) -> str:
        """Whose software it is."""


P = TypeVar("P", bound=Named)


@dataclass(slots=True)
class Bench:
    """One run.

    :param work: where environments are kept from run to run.
    :param stores: where the peers' stores go; a file system in memory keeps the disk out of what is measured.
    :param data: the evaluation sets.
    """

    work: Path
    stores: Path
    arms: Sequence[Arm] = ARMS
    seed: int = 0
    quick: bool = False
    data: Path = DATA
    names: str = ""
    """What the name of an arm or a proxy must contain."""
    software: Mapping[str, Package] = field(default_factory=lambda: PACKAGES)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    """Versions by peer, as each peer's environment tells them."""
    absent: dict[Arm, str] = field(init=False)
    """Arms that do not run, and why."""

    def __post_init__(self) -> None:
        self.arms = self.chosen(self.arms)
        self.absent = {arm: arm.absent for arm in self.arms if arm.absent}

    def asks_for(self, package: str) -> bool:
        """Return whether an arm of a package is asked for."""
        return any(arm.package == package for arm in self.arms)

    @contextmanager
    def opened(self, arm: Arm, capacity: int | None = None) -> Iterator[tuple[Peer, dict[str, Any]]]:
        """Start an arm with an empty cache; yield its process and what it is set to. Raises PeerError, VenvError."""
        with ExitStack() as stack:
            python = python_of(arm.package, self.software[arm.package].requirements, self.work)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.stores)))
            log = self.work / f"{arm.module}.log"
            env: dict[str, str] = {}
            servers = []
            for name in arm.needs:
                server, told = stack.enter_context(SERVICES[name](self.work, folder))
                servers.append(server)
                env |= told
            peer = stack.enter_context(Peer(python, f"benchmarks.peers.{arm.module}", log, servers, **env))
            self.packages[arm.package] = peer.ask("hello")["packages"]
            (folder / "store").mkdir()
            yield peer, peer.ask("open", **arm.opening(str(folder / "store"), capacity))
            peer.ask("close")

    @contextmanager
    def all_opened(
        self, arms: Sequence[Arm], rows: list[Row], workload: str, capacity: int | None = None
    ) -> Iterator[dict[Arm, tuple[Peer, dict[str, Any]]]]:
        """Start several arms side by side; one that does not start becomes a row, and the others go on."""
        with ExitStack() as stack:
            running = {}
            for arm in arms:
                if arm in self.absent:
                    rows.append(self.not_run(workload, arm, self.absent[arm]))
                    continue
                try:
                    running[arm] = stack.enter_context(self.opened(arm, capacity))
                except (PeerError, VenvError) as error:
                    if capacity is None:
                        # Once is enough: to find a hub out of reach takes a minute.
                        self.absent[arm] = str(error)
                    rows.append(self.not_run(workload, arm, str(error)))
            yield running

    def chosen(self, of: Sequence[P]) -> list[P]:
        """Return those of some arms or proxies that were asked for."""
        return [one for one in of if self.names in one.name]

    def not_run(self, workload: str, arm: Named, why: str) -> Row:
        """Return the row of an arm that did not run, with what others say of it."""
        # A sentence is enough, and addresses of other places have no use in a result.
        said = re.sub(r"'?https?://[^\s']+'?", "its address", why.splitlines()[0])
        print(f"{workload}: {arm.name} does not run: {said}", file=sys.stderr)
        published = [
            {"figure": one.figure, "conditions": one.conditions, "source": one.source}
            for one in self.software[arm.package].published
        ]
        return {"workload": workload, "arm": arm.name, "ran": False, "why": said, "published": published}
