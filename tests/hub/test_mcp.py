"""The MCP server as a real client sees it, over the pipes of a real process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cli.app import main
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document, Visibility
from recall_cli.hub.stores.folder import make_hub, open_hub


@pytest.fixture
def hubs(tmp_path: Path) -> Path:
    """A folder with a private hub called books."""
    make_hub(tmp_path, "books", HashEmbedder(), visibility=Visibility.PRIVATE, owner="me")
    engine = open_hub(tmp_path, "books")
    ingest(engine, HashEmbedder(), [Document("pw", "Press the red button.", "Passwords"), Document("b", "The moon.")])
    engine.close()
    return tmp_path


def talk(hubs: Path, *calls: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Start the server, and return its tools and what it answers to each call."""
    arguments = ["-m", "recall_cli", "hub", "mcp", "books", "--hub-dir", str(hubs)]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def run() -> tuple[Any, list[Any]]:
        with anyio.fail_after(60):
            async with Client(stdio_client(parameters)) as client:
                tools = (await client.list_tools()).tools
                return tools, [await client.call_tool("recall", call) for call in calls]

    return anyio.run(run)


def test_a_client_finds_one_tool_and_asks_it(hubs: Path) -> None:
    tools, (found, one, wrong, empty, none) = talk(
        hubs,
        {"question": "which button?"},
        {"question": "which button?", "k": 1, "level": "chunk"},
        {"question": "which button?", "k": 0},
        {"question": "  "},
        {"question": "which button?", "min_score": 1.0},
    )
    (tool,) = tools
    assert tool.name == "recall"
    assert set(tool.input_schema["properties"]) == {"question", "k", "level", "min_score"}
    assert tool.input_schema["required"] == ["question"]
    assert not found.is_error
    assert [result["doc_id"] for result in found.structured_content["results"]][:1] == ["pw"]
    assert found.structured_content["hub"] == "books"
    assert "Press the red button." in found.content[0].text
    assert len(one.structured_content["results"]) == 1
    assert wrong.is_error
    assert empty.is_error
    assert "empty" in empty.content[0].text
    assert none.structured_content["results"] == []


def test_a_hub_that_is_not_there_is_said_before_anything_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hub", "mcp", "gone", "--hub-dir", str(tmp_path)]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "recall hub list" in printed.err


def test_a_missing_extra_names_the_command_to_type(
    hubs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "recall_cli.hub.mcp", raising=False)
    assert main(["hub", "mcp", "books", "--hub-dir", str(hubs)]) == 2
    assert "pip install '.[mcp]'" in capsys.readouterr().err
