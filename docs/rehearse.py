"""Play both ends of `recall serve` from a log of request and response lines: no provider and no key is needed.

    python docs/rehearse.py answer traffic.jsonl     # the provider, on 127.0.0.1:9000: it answers as logged
    python docs/rehearse.py ask traffic.jsonl        # the callers: they ask as logged, of the proxy on 127.0.0.1:8484

A question that the log does not hold is answered with an echo. Callers carry their tenant as a key, so that tenants do
not meet; every answer that they get is compared with the logged one, letter by letter.
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"


def rows(log: Path) -> list[dict[str, Any]]:
    """Return the calls of a log."""
    with log.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def key(request: Mapping[str, Any]) -> str:
    """Return what decides the logged answer of a request."""
    return json.dumps([request["model"], request.get("system"), request["messages"]])


def said(body: Mapping[str, Any]) -> str:
    """Return the text of an answer of either API."""
    text: str = (
        body["choices"][0]["message"]["content"]
        if "choices" in body
        else "".join(block["text"] for block in body["content"])
    )
    return text


def echo(request: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """Return an answer to a question that the log does not hold."""
    text = f"(No provider, an echo.) You asked: {request['messages'][-1]['content']}"
    if chat:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        return {"object": "chat.completion", "model": request["model"], "choices": [choice], "usage": usage}
    usage = {"input_tokens": 10, "output_tokens": 10}
    content = [{"type": "text", "text": text}]
    return {"type": "message", "role": "assistant", "model": request["model"], "content": content,
            "stop_reason": "end_turn", "usage": usage}  # fmt: skip


def provider(log: Path, port: int) -> ThreadingHTTPServer:
    """Return a server that answers chat completions and messages as logged; port 0 takes a free one."""
    known = {key(row["request"]): row["response"] for row in rows(log)}

    class Provider(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one segment: in two, each answer would wait 40 ms for an acknowledgement.
        wbufsize = 1 << 16

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if request.get("stream"):
                return self.say(400, {"error": {"message": "the rehearsal answers whole, not in streams"}})
            body = known.get(key(request)) or echo(request, chat=self.path.endswith("/chat/completions"))
            return self.say(200, {"id": "rehearsal", "created": 1_700_000_000, **body})

        def say(self, status: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer((HOST, port), Provider)


def ask(log: Path, port: int) -> Counter[tuple[str, bool]]:
    """Ask what was asked, in the order of the log; count what the proxy did, and whether it answered as logged."""
    found: Counter[tuple[str, bool]] = Counter()
    proxy = http.client.HTTPConnection(HOST, port)
    for row in rows(log):
        chat = "choices" in row["response"]
        path = "/v1/chat/completions" if chat else "/v1/messages"
        caller = {"authorization": f"Bearer {row['tenant']}"} if chat else {"x-api-key": row["tenant"]}
        proxy.request("POST", path, json.dumps(row["request"]), {"content-type": "application/json", **caller})
        response = proxy.getresponse()
        body = json.loads(response.read())
        outcome = response.headers["x-recall"].replace("; reason=", " ")
        found[outcome, said(body) == said(row["response"])] += 1
    proxy.close()
    return found


def table(found: Mapping[tuple[str, bool], int]) -> str:
    """Return the counts as lines of text."""
    lines = [f"{'x-recall':30} {'calls':>6}  as logged"]
    for outcome in sorted({outcome for outcome, _ in found}):
        equal, other = found.get((outcome, True), 0), found.get((outcome, False), 0)
        lines.append(f"{outcome:30} {equal + other:6,}  {equal:9,}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("end", choices=["answer", "ask"])
    parser.add_argument("log", type=Path)
    parser.add_argument("--port", type=int, help="of the provider (9000), or of the proxy that is asked (8484)")
    arguments = parser.parse_args()
    if arguments.end == "answer":
        with provider(arguments.log, arguments.port or 9000) as server:
            print(f"a provider that answers as logged: http://{HOST}:{server.server_port}", flush=True)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    else:
        print(table(ask(arguments.log, arguments.port or 8484)))
