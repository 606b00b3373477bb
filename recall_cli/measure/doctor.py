"""What recall stands on here, looked at: what is broken, what is slow and why, and what to do about it.

Nothing is changed and no network is asked. A check that raises is a check
that failed, with the exception as what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from recall_cli.errors import REINSTALL, RecallError
from recall_cli.measure import doctor_files, doctor_libraries, doctor_machine
from recall_cli.measure.findings import Finding, State
from recall_cli.measure.result import new_result
from recall_cli.types import Result

Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is looked at besides the machine and the installation."""

    embedder: str = "static"
    store: str | None = None
    settings: tuple[str, ...] = ()
    """Settings files that were read."""
    variables: tuple[str, ...] = ()
    """Names of the RECALL_* variables that are set; their values may be secrets."""
    links: tuple[str, ...] = ()
    """Names of those of them that link to a network service: the platform sets them, and nothing reads them."""
    known_variables: tuple[str, ...] = ()


def run(plan: Plan) -> Result:
    """Return a row a finding; `summary` counts them by state."""
    result = new_result("doctor", asdict(plan) | {"known_variables": len(plan.known_variables)})
    result.rows = [asdict(finding) | {"state": finding.state.value} for finding in _findings(plan)]
    counts = Counter(row["state"] for row in result.rows)
    result.summary = {state.value: counts[state.value] for state in State}
    return result


def check(result: Result) -> None:
    """Raise RecallError when something is broken."""
    broken = [row for row in result.rows if row["state"] == State.BROKEN]
    if broken:
        names = ", ".join(row["check"] for row in broken)
        raise RecallError(f"{names}: {broken[0]['found']}", hint=broken[0]["hint"])


def _findings(plan: Plan) -> list[Finding]:
    checks: Sequence[tuple[str, Check]] = (
        ("python", doctor_machine.python),
        ("processor", doctor_machine.processor),
        ("memory", doctor_machine.memory),
        ("open files", doctor_machine.open_files),
        ("BLAS", doctor_libraries.blas),
        ("OpenMP", doctor_libraries.openmp),
        ("hnswlib", doctor_libraries.graph),
        ("faiss", doctor_libraries.codes),
        ("tantivy", doctor_libraries.word_index),
        ("SQLite", doctor_files.sqlite_library),
        ("bundled model", doctor_libraries.bundled_model),
        ("embedder", partial(doctor_libraries.embedder, plan.embedder)),
        ("extras", doctor_libraries.extras),
        ("settings", partial(doctor_files.settings, plan.settings)),
        ("variables", partial(doctor_files.variables, plan.variables, plan.known_variables, plan.links)),
        ("store", partial(doctor_files.store, plan.store, plan.embedder)),
    )
    return [finding for name, look in checks for finding in _looked(name, look)]


def _looked(name: str, look: Check) -> list[Finding]:
    try:
        return list(look())
    except RecallError as error:
        return [Finding(name, State.BROKEN, str(error), error.hint)]
    except Exception as error:
        hint = f"{REINSTALL}, into a new environment; if it stays, report this line"
        return [Finding(name, State.BROKEN, f"{type(error).__name__}: {error}", hint)]
