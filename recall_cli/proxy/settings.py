"""What `recall serve` was told, checked once; everything else reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from recall_cli.errors import UsageError

OPENAI_URL = "https://api.openai.com"
ANTHROPIC_URL = "https://api.anthropic.com"

SCOPES = ("user", "credential", "all")
OPINIONS = ("auto", "none", "evidence", "model")
LOOPBACK = ("127.0.0.1", "::1", "localhost")

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take: bytes, connections, seconds."""

    body_bytes: int = 64 * MIB
    """A larger request body is refused (413)."""
    cached_body_bytes: int = 1 * MIB
    """A larger request or answer passes and is neither looked up nor stored."""
    header_bytes: int = 64 * 1024
    held_bytes: int = 8 * MIB
    """Bytes of one answer kept for those who wait for it; beyond, it is relayed at the pace of the slowest."""
    connections: int = 2_048
    header_s: float = 10.0
    """Seconds for a request's headers to arrive, and for its body."""
    body_s: float = 60.0
    idle_s: float = 75.0
    """Seconds a connection may idle: longer than SDKs keep one, or they meet it closing."""
    write_s: float = 60.0
    """Seconds a client may leave its answer unread."""
    connect_s: float = 5.0
    upstream_s: float = 600.0
    """Seconds the upstream may be silent, as the SDKs' own default."""
    lookup_s: float = 0.25
    """Seconds a lookup may take before the request goes on without it."""
    drain_s: float = 30.0
    writes: int = 10_000
    """Answers that may wait to be stored; more are dropped and counted."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the proxy behaves. Raises UsageError for what makes no sense."""

    openai: str = OPENAI_URL
    anthropic: str = ANTHROPIC_URL
    host: str = "127.0.0.1"
    port: int = 8484
    shadow: bool = False
    allow_sampled: bool = False
    share_scope: str = "credential"
    credential_headers: tuple[str, ...] = ()
    """Headers beside the usual ones that tell callers apart."""
    verify_sample: float = 0.05
    verify_on_hit: str = "auto"
    """auto: evidence where one cutoff serves, none under a policy that weighs the evidence itself."""
    learn_usage: bool = True
    """Ask OpenAI upstreams for the usage of streams, unseen by the caller."""
    log_text: bool = False
    admin: bool = False
    """Offer the admin API to other machines too; it takes the token in any case."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("openai", "anthropic"):
            url = urlsplit(getattr(self, name))
            if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
                raise UsageError(
                    f"the upstream {getattr(self, name)!r} is no base URL", hint="write it as in https://api.openai.com"
                )
            if url.username or url.password:
                raise UsageError(
                    "an upstream URL must not hold credentials", hint="clients send their own; they pass through"
                )
        if self.share_scope not in SCOPES:
            raise UsageError(f"there is no scope {self.share_scope!r}", hint=f"choose from {', '.join(SCOPES)}")
        if self.verify_on_hit not in OPINIONS and not (
            self.verify_on_hit.startswith("llm:") and len(self.verify_on_hit) > 4
        ):
            raise UsageError(
                f"there is no second opinion {self.verify_on_hit!r}", hint="choose none, evidence, model or llm:MODEL"
            )
        if not 0.0 <= self.verify_sample <= 1.0:
            raise UsageError(
                f"--verify-sample must be between 0 and 1, not {self.verify_sample}", hint="0.05 checks 5 % of the hits"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK

    def url(self, port: int) -> str:
        """Return the base URL of the address to listen on.

        :param port: the one that was bound.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}"
