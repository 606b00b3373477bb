"""`recall serve`: the caching proxy in front of OpenAI- and Anthropic-compatible traffic."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recall_cli.cli import options
from recall_cli.cli.commands.hub_options import hub_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from recall_cli.proxy.serve import Server
    from recall_cli.types import Completion

UPSTREAM = "Upstream"
CACHE = "What may be served"
CHECKS = "Checks and labels"
KEEPING = "Keeping"
OPERATION = "Operation"
HUBS = "Hubs of documents"


class PolicyName(StrEnum):
    """How it is decided what is close enough."""

    exact = "exact"
    static = "static"
    adaptive = "adaptive"


class Scope(StrEnum):
    """Who shares answers."""

    user = "user"
    credential = "credential"
    all = "all"


class Durability(StrEnum):
    """What an acknowledged entry survives."""

    normal = "normal"
    full = "full"


UpstreamOpenai = Annotated[
    str, options.option("--upstream-openai", "Base URL of the OpenAI-compatible API.", UPSTREAM, "URL")
]
UpstreamAnthropic = Annotated[
    str, options.option("--upstream-anthropic", "Base URL of the Anthropic-compatible API.", UPSTREAM, "URL")
]
UpstreamTimeout = Annotated[
    float, options.option("--upstream-timeout", "Seconds the upstream may be silent.", UPSTREAM, min=0.1)
]
Host = Annotated[str, options.option("--host", "Address to listen on.", OPERATION)]
Port = Annotated[int, options.option("--port", "Port to listen on; 0 takes a free one.", OPERATION, min=0, max=65535)]
Policy = Annotated[
    PolicyName,
    options.option(
        "--policy",
        "exact serves equal requests alone; static has one cutoff for all, adaptive learns one by namespace.",
        CACHE,
    ),
]
Target = Annotated[
    float,
    options.option("--target", "Share of semantic hits that may be wrong.", CACHE, "0..1", min=0.0001, max=0.5),
]
Shadow = Annotated[bool, options.option("--shadow", "Decide, count and label, but never serve.", CACHE)]
AllowSampled = Annotated[
    bool, options.option("--allow-sampled", "Also serve requests at a temperature unset or above 0.", CACHE)
]
ShareScope = Annotated[
    Scope, options.option("--share-scope", "Who shares answers: one end user, one credential, all.", CACHE)
]
CredentialHeader = Annotated[
    list[str] | None,
    options.option("--credential-header", "Another header that tells callers apart; may be repeated.", CACHE, "NAME"),
]
VerifySample = Annotated[
    float, options.option("--verify-sample", "Share of semantic hits asked again in the background.", CHECKS, "0..1")
]
VerifyOnHit = Annotated[
    str,
    options.option(
        "--verify-on-hit",
        "What a semantic hit must pass beside the policy: evidence (the default of static), none (the default of "
        "adaptive), model (extra: verify) or llm:MODEL.",
        CHECKS,
    ),
]
NoLearnUsage = Annotated[
    bool, options.option("--no-learn-usage", "Do not ask OpenAI upstreams for the usage of streams.", UPSTREAM)
]
Store = Annotated[
    str | None,
    options.option(
        "--store",
        "File of the answers (default: in your settings folder), postgresql:// URL, or memory.",
        KEEPING,
        "FILE|URL",
    ),
]
StoreDurability = Annotated[
    Durability, options.option("--durability", "full survives a power cut too, at a sync a write.", KEEPING)
]
Ttl = Annotated[float | None, options.option("--ttl", "Seconds an answer may be served.", KEEPING, min=1)]
MaxEntries = Annotated[
    int | None, options.option("--max-entries", "Answers kept; the longest unused go.", KEEPING, min=1)
]
MaxBytes = Annotated[
    int | None, options.option("--max-bytes", "Bytes of answers, prompts and vectors kept.", KEEPING, min=1)
]
HeldBytes = Annotated[
    int,
    options.option(
        "--held-bytes", "Bytes of memory for entries of a shared store; others are searched there.", KEEPING, min=1
    ),
]
MaxBody = Annotated[
    int, options.option("--max-body", "Bytes of a request body; larger ones are refused.", OPERATION, min=1024)
]
MaxConnections = Annotated[int, options.option("--max-connections", "Connections at a time.", OPERATION, min=1)]
Drain = Annotated[
    float, options.option("--drain", "Seconds that answers under way have after SIGTERM.", OPERATION, min=0)
]
Log = Annotated[
    str, options.option("--log", "Access log, JSON lines: a file, - for standard error, none.", OPERATION, "FILE")
]
Admin = Annotated[
    bool, options.option("--admin", "Offer the admin API (RECALL_ADMIN_TOKEN) beyond this machine too.", OPERATION)
]
LogText = Annotated[bool, options.option("--log-text", "Write prompts into the access log.", OPERATION)]
HubDir = Annotated[
    Path | None, options.option("--hub-dir", "Also serve the hubs in this folder, under /api/hub/.", HUBS, "FOLDER")
]
HubStore = Annotated[
    str | None,
    options.option("--hub-store", "Serve the hubs of this postgresql:// URL.", HUBS, "URL"),
]
HubUrl = Annotated[
    str, options.option("--hub-url", "How callers name this server; tokens are for it (default: its address).", HUBS)
]
HubRerank = Annotated[
    str, options.option("--hub-rerank", "none, or llm[:MODEL]; address and key as for `recall hub query`.", HUBS)
]
HubCacheTtl = Annotated[
    float, options.option("--hub-cache-ttl", "Seconds that a hub's answer is kept; 0 keeps none.", HUBS, min=0)
]
HubCachePrivate = Annotated[
    bool,
    options.option("--hub-cache-private", "Keep answers of hubs that are not public too, for each caller apart.", HUBS),
]
HubRate = Annotated[
    float, options.option("--hub-rate", "Requests a second that one caller may make of a hub; 0: any.", HUBS, min=0)
]
HidePrivate = Annotated[
    bool, options.option("--hide-private", "Answer alike for private hubs and for those that do not exist.", HUBS)
]


def serve(
    upstream_openai: UpstreamOpenai = "https://api.openai.com",
    upstream_anthropic: UpstreamAnthropic = "https://api.anthropic.com",
    upstream_timeout: UpstreamTimeout = 600.0,
    no_learn_usage: NoLearnUsage = False,
    policy: Policy = PolicyName.static,
    tau: options.Tau = 0.8,
    target: Target = 0.01,
    shadow: Shadow = False,
    allow_sampled: AllowSampled = False,
    share_scope: ShareScope = Scope.credential,
    credential_header: CredentialHeader = None,
    verify_sample: VerifySample = 0.05,
    verify_on_hit: VerifyOnHit = "auto",
    embedder: options.Embedder = "static",
    index: options.Index = "auto",
    store: Store = None,
    durability: StoreDurability = Durability.normal,
    ttl: Ttl = None,
    max_entries: MaxEntries = None,
    max_bytes: MaxBytes = None,
    held_bytes: HeldBytes = 1 << 30,
    host: Host = "127.0.0.1",
    port: Port = 8484,
    max_body: MaxBody = 64 << 20,
    max_connections: MaxConnections = 2_048,
    drain: Drain = 30.0,
    log: Log = "-",
    log_text: LogText = False,
    admin: Admin = False,
    hub_dir: HubDir = None,
    hub_store: HubStore = None,
    hub_url: HubUrl = "",
    hub_rerank: HubRerank = "none",
    hub_cache_ttl: HubCacheTtl = 60.0,
    hub_cache_private: HubCachePrivate = False,
    hub_rate: HubRate = 20.0,
    hide_private: HidePrivate = False,
) -> None:
    """Serve answers from the cache, and pass everything else on to the providers.

    Start with --shadow: it decides, counts and compares on your traffic, and serves nothing. SDKs are pointed at
    it by their base URL; their keys pass through. Only POST /v1/chat/completions and /v1/messages are cached.

    Example: recall serve --shadow --policy adaptive --store answers.db
    """
    from recall_cli.proxy.serve import ServePlan, run
    from recall_cli.proxy.settings import Limits, Settings

    limits = Limits(body_bytes=max_body, connections=max_connections, upstream_s=upstream_timeout, drain_s=drain)
    settings = Settings(
        openai=upstream_openai,
        anthropic=upstream_anthropic,
        host=host,
        port=port,
        shadow=shadow,
        allow_sampled=allow_sampled,
        share_scope=share_scope.value,
        credential_headers=tuple(credential_header or ()),
        verify_sample=verify_sample,
        verify_on_hit=verify_on_hit,
        learn_usage=not no_learn_usage,
        log_text=log_text,
        admin=admin,
        limits=limits,
    )
    hubs = None
    if hub_dir is not None or hub_store is not None:
        from recall_cli.hub.api.app import HubPlan

        hubs = HubPlan(
            hub_place(hub_dir, hub_store),
            url=hub_url,
            reranker=hub_rerank,
            cache_ttl_s=hub_cache_ttl,
            cache_private=hub_cache_private,
            hide_private=hide_private,
            per_s=hub_rate,
            log_text=log_text,
        )
    place, mine = store_place(store)
    plan = ServePlan(
        settings,
        embedder=embedder,
        index=index,
        policy=policy.value,
        tau=tau,
        target_false_hit=target,
        store=place,
        store_is_default=not mine,
        durability=durability.value,
        ttl=ttl,
        max_entries=max_entries,
        max_bytes=max_bytes,
        held_bytes=held_bytes,
        log=None if log == "none" else log,
        hub=hubs,
    )
    code = run(plan, ready=say_where, cost=cost_of())
    if code:
        raise typer.Exit(code)


def store_place(chosen: str | None) -> tuple[str | None, bool]:
    """Return the store's file (None: memory) and whether the user named it."""
    if chosen is not None:
        return (None if chosen == "memory" else chosen), True
    return str(Path(typer.get_app_dir("recall")) / "answers.db"), False


def cost_of() -> Callable[[str, Completion], float | None]:
    """Return what tells the dollars of a call at today's list prices. The table is loaded with the first call."""
    import time

    from recall_cli.measure.pricing.book import PriceBook

    book = PriceBook()

    def cost(provider: str, answer: Completion) -> float | None:
        found = book.cost(provider, answer.model, answer.usage, when=time.time())
        return None if found is None else float(found.total)

    return cost


def say_where(server: Server, port: int) -> None:
    """Print the lines to paste, and what to know."""
    from recall_cli.cache.policy.static import DEFAULT_TAU
    from recall_cli.cli.output import note

    plan, settings = server.plan, server.plan.settings
    url = settings.url(port)
    print(f"export OPENAI_BASE_URL={url}/v1", f"export ANTHROPIC_BASE_URL={url}", sep="\n", flush=True)
    mode = "shadow mode: nothing is served from the cache" if settings.shadow else "serving from the cache"
    kept = plan.store if plan.store and not server.degraded else "memory: gone when this ends"
    told = {
        "exact": "equal requests alone",
        "static": f"cutoff {plan.tau:g}",
        "adaptive": f"at most {100 * plan.target_false_hit:g} % of semantic hits wrong",
    }
    policy = f"{server.policy.name} ({told[plan.policy]})"
    entries = "shared entries" if plan.is_shared else f"{len(server.keeper.cache):,} entries"
    note(f"{mode}; policy {policy}; {entries} in {kept}; page {url}/recall")
    if server.is_away:
        note("the database does not answer: every request is passed on until it does")
    if plan.policy == "adaptive" and plan.tau != DEFAULT_TAU:
        note("--tau is not used: the adaptive policy finds its cutoffs itself, see --target")
    if plan.ttl is None and plan.max_entries is None and plan.max_bytes is None:
        note("the cache grows without a limit; --max-bytes, --max-entries or --ttl sets one")
    if server.hub is not None:
        names = server.hub.shown_names()
        note(f"hubs under {url}/api/hub/: {names}; tokens are for {server.hub.tokens.issuer}")
    if not settings.allow_sampled:
        note("only requests at temperature 0, or with a seed, are looked up; --allow-sampled takes the others too")
    if not settings.is_loopback:
        note(
            "warning: other machines can connect, and their credentials travel in the clear",
            "put a TLS terminator in front, or listen on 127.0.0.1",
        )
