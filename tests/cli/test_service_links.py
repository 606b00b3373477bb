"""Variables that a platform sets beside a Service called recall: none of them is taken for a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli import service_links
from recall_cli.cli.app import _command, main
from recall_cli.cli.commands.doctor import BY_NAME, _variables


def service(name: str, *, address: str = "10.0.0.1", port: int = 8787, protocol: str = "tcp") -> dict[str, str]:
    """The variables that Kubernetes sets for a Service, by its documentation."""
    prefix, kind = name.upper().replace("-", "_"), protocol.upper()
    shown = f"[{address}]" if ":" in address else address
    url = f"{protocol}://{shown}:{port}"
    one = f"{prefix}_PORT_{port}_{kind}"
    return {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_HTTP": str(port),
        f"{prefix}_PORT": url,
        one: url,
        f"{one}_PROTO": protocol,
        f"{one}_PORT": str(port),
        f"{one}_ADDR": address,
    }


SERVICES = [
    service("recall"),
    service("recall", address="fd00::1", port=80),
    service("recall", protocol="udp"),
    service("recall", protocol="sctp"),
    service("recall-proxy") | service("recall"),
]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The plans that `recall serve` would have run."""
    plans: list[Any] = []

    def run(plan: Any, **_: Any) -> int:
        plans.append(plan)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("recall_cli.proxy.serve.run", run)
    return plans


@pytest.mark.parametrize("variables", SERVICES)
def test_a_server_starts_beside_a_service_of_its_name(
    variables: dict[str, str], served: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["serve", "--store", "memory"]) == 0
    assert (served[0].settings.host, served[0].settings.port) == ("127.0.0.1", 8484)
    said = capsys.readouterr().err
    assert f"RECALL_PORT is ignored: {variables['RECALL_PORT']} is a link" in said
    assert "--port" in said


def test_a_link_leaves_the_settings_file_and_the_flag_in_force(
    served: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALL_PORT", "tcp://10.0.0.1:8787")
    Path("recall.toml").write_text("[serve]\nport = 9001\n")
    assert main(["serve"]) == 0
    assert main(["serve", "--port", "9002"]) == 0
    assert [plan.settings.port for plan in served] == [9001, 9002]
    assert capsys.readouterr().err.count("is ignored") == 1


@pytest.mark.parametrize("value", ["http", "tcp", "tcp://", "tcp://10.0.0.1", "http://10.0.0.1:8787", "99999999", "-1"])
def test_a_port_that_is_none_is_still_an_error(
    value: str, served: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALL_PORT", value)
    assert main(["serve"]) == 2
    assert "RECALL_PORT" in capsys.readouterr().err
    assert not served


def test_a_link_on_the_command_line_is_an_error(served: list[Any]) -> None:
    assert main(["serve", "--port", "tcp://10.0.0.1:8787"]) == 2


def test_a_port_in_the_variable_is_taken(served: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALL_PORT", "9003")
    assert main(["serve"]) == 0
    assert served[0].settings.port == 9003


def test_other_commands_say_nothing_of_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RECALL_PORT", "tcp://10.0.0.1:8787")
    assert main(["sample-log", "-n", "1"]) == 0
    assert "RECALL_PORT" not in capsys.readouterr().err


def test_every_variable_that_may_be_a_link_passes_it_over() -> None:
    names = {*BY_NAME, *_variables(_command())}
    assert "RECALL_PORT" in names
    assert not [name for name in names if service_links.LINK_NAME.fullmatch(name)], (
        "a link would be taken for a setting"
    )
    for option in service_links.options_of(_command()):
        for name in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
            assert isinstance(option, service_links._LinkedOption) == bool(service_links.SHARED_NAME.fullmatch(name))


@pytest.mark.parametrize("variables", SERVICES)
def test_doctor_knows_the_links(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main(["doctor", "--format", "csv"])
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("variables,") and "RECALL_PORT" in line]
    assert len(lines) == 1
    assert lines[0].startswith("variables,absent,")
    assert all(name in lines[0] for name in variables)
    assert variables["RECALL_PORT"] not in said
