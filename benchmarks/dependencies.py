"""What recall installs: each dependency, why, what it brings along, its size, and the seconds that installing it takes.

    python benchmarks/dependencies.py --out results/dependencies.json

Every dependency is installed into an empty environment of its own, from the registry and without pip's cache, with what
it needs: a package that two of them need counts for both. The reasons are the comments in pyproject.toml. Then recall's
own archives are built, and recall is installed as README says.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recall_cli.measure.result import OutFile, new_result, to_json

ROOT = Path(__file__).resolve().parents[1]
UNMEASURED = {"test", "test-litellm", "train"}
"""Extras that no user of the command line needs; `train` takes gigabytes."""
REASON = re.compile(r'^\s*"(?P<requirement>[^"]+)",?\s*(?:\]\s*)?(?:#\s*(?P<reason>.*))?$')
NAME = re.compile(r"[A-Za-z0-9._-]+")


def canonical(requirement: str) -> str:
    """Return the name of a requirement's package as registries compare it."""
    return re.sub(r"[-_.]+", "-", NAME.findall(requirement)[0]).lower()


def declared(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (group, requirement, reason) of a pyproject.toml; the group of what everybody gets is "recall"."""
    project = tomllib.loads(text)["project"]
    reasons = {}
    for line in text.splitlines():
        if found := REASON.match(re.sub(r"^\s*[\w-]+ = \[(?=\")", "", line)):
            reasons.setdefault(found["requirement"], found["reason"] or "")
    groups = {"recall": project["dependencies"], **project["optional-dependencies"]}
    for group, requirements in groups.items():
        if group not in UNMEASURED:
            yield from ((group, requirement, reasons.get(requirement, "")) for requirement in requirements)


def installed(folder: Path) -> dict[str, dict[str, Any]]:
    """Return version, licence and bytes of every package in a folder of packages."""
    found = {}
    for package in metadata.distributions(path=[str(folder)]):
        about = package.metadata
        files = (Path(str(package.locate_file(file))) for file in package.files or ())
        found[canonical(package.name)] = {
            "version": package.version,
            "licence": licence(about),
            "bytes": sum(file.stat().st_size for file in files if file.is_file()),
        }
    return found


def licence(about: metadata.PackageMetadata) -> str:
    """Return the licence that a package names: its expression, its classifiers, or the first line of its text."""
    told = about.get("License-Expression")
    if told:
        return told
    classified = [
        name.rpartition(" :: ")[2] for name in about.get_all("Classifier") or () if name.startswith("License")
    ]
    return ", ".join(classified) or (about.get("License") or "not named").strip().partition("\n")[0]


def install(requirement: str) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """Install into an empty environment; return what is in it then, and the seconds and CPU seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="recall-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        site = next((Path(folder) / "lib").glob("python*")) / "site-packages"
        before = installed(site)
        started, cpu = time.perf_counter(), children_cpu()
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", requirement], check=True)
        took = {
            "install_s": round(time.perf_counter() - started, 1),
            "install_cpu_s": round(children_cpu() - cpu, 1),
        }
        return {name: facts for name, facts in installed(site).items() if name not in before}, took


def children_cpu() -> float:
    """Return the CPU seconds of the processes that were started and have ended: what others do does not raise them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(group: str, requirement: str) -> dict[str, Any]:
    """Return the row of one dependency."""
    found, took = install(requirement)
    own = found.pop(canonical(requirement))
    print(f"{group}: {requirement} in {took['install_s']} s", file=sys.stderr)
    return {
        "group": group,
        "package": NAME.findall(requirement)[0],
        "requirement": requirement,
        **own,
        "brings": sorted(found),
        "brings_bytes": sum(facts["bytes"] for facts in found.values()),
        **took,
    }


def archives() -> dict[str, int]:
    """Return the sizes of the wheel and the source archive, built from what git holds."""
    with tempfile.TemporaryDirectory(prefix="recall-") as folder:
        clone, out = str(Path(folder) / "clone"), Path(folder) / "dist"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), clone], check=True)
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=clone, check=True)
        return {
            f"{kind}_bytes": next(out.glob(end)).stat().st_size for kind, end in (("wheel", "*.whl"), ("sdist", "*.gz"))
        }


def main() -> None:
    """Run, and write the result document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    out = OutFile(parser.parse_args().out)
    result = new_result("benchmarks/dependencies", {"unmeasured": sorted(UNMEASURED)})
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    result.rows = [measured(group, requirement) for group, requirement, _ in declared(text)]
    found, took = install(str(ROOT))
    own = found.pop("recall-cli")
    result.summary = {
        **archives(),
        "installed_bytes": own["bytes"],
        "packages": len(found),
        "packages_bytes": sum(facts["bytes"] for facts in found.values()),
        "licences": {name: facts["licence"] for name, facts in sorted(found.items())},
        **took,
    }
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
