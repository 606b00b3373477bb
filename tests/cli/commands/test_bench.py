"""`recall bench` as people and scripts use it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cli.app import main
from recall_cli.cli.commands.bench import view
from recall_cli.cli.render.text import to_markdown
from recall_cli.errors import UsageError
from recall_cli.measure.bench import bench, policy
from recall_cli.measure.prompts import Kind
from recall_cli.measure.result import from_json, to_document
from recall_cli.measure.synthetic.sample_log import log_lines
from recall_cli.types import Completion, Decision, Lookup, Result

QUICK = ["bench", "--lookups", "60"]
PERCENTILES = ("embed_us", "embed_first_seen_us", "search_us", "lookup_us", "lookup_first_seen_us", "exact_us")


@pytest.fixture(scope="module")
def result() -> Result:
    return bench.run(bench.BenchPlan(entries=(300, 200), lookups=60, warmup=5, reference=True))


def test_the_document_has_the_columns_of_the_blueprint(result: Result) -> None:
    rows = [row for row in result.rows if row["embedder"] != bench.REFERENCE]
    assert [(row["embedder"], row["entries"]) for row in rows] == [
        ("hash-v1", 200),
        ("hash-v1", 300),
        ("static", 200),
        ("static", 300),
    ]
    for row in rows:
        assert row["dim"] == 256
        assert row["index"] == "auto (exact)"
        assert row["prompts_per_s"] > 0
        for name in PERCENTILES:
            assert row[name]["p50"] > 0
            assert row[name]["p99"] is None  # 60 samples hold no p99
            low, high = row[name]["p50_interval"]
            assert low <= row[name]["p50"] <= high
    assert result.rows[-1]["embedder"] == bench.REFERENCE


def test_rates_stand_beside_their_n_and_interval(result: Result) -> None:
    for row in result.rows[:-1]:
        low, high = row["hit_rate_interval"]
        assert low <= row["hit_rate"] <= high
        assert row["hit_rate"] == row["hits"] / row["queries"]
        assert row["hits"] == row["exact_hits"] + row["semantic_hits"]
        assert row["right_rate"] == (row["hits"] - row["false_hits"]) / row["queries"]
    hash_row, static_row = result.rows[0], result.rows[2]
    # The stub catches exact text and nothing else, and has no false-hit rate: there is no semantic hit to be false.
    assert hash_row["semantic_hits"] == 0
    assert hash_row["false_hit_rate"] is None
    assert hash_row["exact_hits"] == static_row["exact_hits"] > 0
    assert static_row["semantic_hits"] > 0
    assert static_row["false_hit_rate"] == static_row["false_hits"] / static_row["semantic_hits"]


def test_kinds_add_up_and_traps_are_told_apart(result: Result) -> None:
    kinds = result.summary["by_kind"]["static@300"]
    assert sum(kinds[k.value]["queries"] for k in Kind if k.value in kinds) == result.rows[0]["queries"]
    traps = {name: value for name, value in kinds.items() if name.startswith("trap:")}
    assert sum(value["queries"] for value in traps.values()) == kinds["lookalike"]["queries"]
    assert kinds["repeat"]["served"] == kinds["repeat"]["queries"]
    assert sum(kinds[k]["wrong"] for k in ("paraphrase", "lookalike", "new")) == result.rows[2]["false_hits"]


def test_ratios_carry_intervals(result: Result) -> None:
    ratios = result.summary["ratios"]
    assert {"static.embed", "static.batch_speedup", "static@300.lookup"} <= ratios.keys()
    for value in ratios.values():
        assert value["interval"][0] <= value["ratio"] <= value["interval"][1]


def test_warnings_are_typed_and_say_what_helps(result: Result) -> None:
    codes = {warning.code for warning in result.warnings}
    assert "TOO_FEW_FOR_P99" in codes
    assert not codes & {"FEW_QUERIES", "UNLABELLED"}


def test_document_round_trips(result: Result) -> None:
    document = to_document(result)
    again = from_json(json.dumps(document).encode())
    assert to_document(again) == document
    assert to_markdown(view(again)) == to_markdown(view(result))


def test_equal_seeds_give_equal_answers() -> None:
    one, two = (bench.run(bench.BenchPlan(embedders=("static",), lookups=5, warmup=0, seed=3)) for _ in "ab")
    for key in ("hits", "false_hits", "semantic_hits"):
        assert one.rows[0][key] == two.rows[0][key]
    assert one.summary["by_kind"] == two.summary["by_kind"]


def test_json_alone_is_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    assert main([*QUICK, "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads(out.read_bytes())
    assert "warning:" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert out.stat().st_mode & 0o044


def test_csv_keeps_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--format", "csv", "-e", "static"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["lookup_us.p50"]) > 0
    assert row["embedder"] == "static"


def test_a_piped_table_loses_no_digit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # a narrow terminal that stdout is not
    assert main([*QUICK, "--format", "table"]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "StaticModel" not in printed  # no --reference, no such row
    assert "\x1b" not in printed


def test_your_own_prompts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    lines = [f"how do I {verb} my {thing}" for verb in ("clean", "sell", "fix") for thing in ("bike", "oven", "roof")]
    prompts.write_text("\n".join([*lines, lines[0], "HOW DO I CLEAN MY BIKE"]) + "\n")
    assert main([*QUICK, "--json", "-e", "static", "--prompts", str(prompts)]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert row["queries"] == 11
    assert row["exact_hits"] == 1
    assert row["semantic_hits"] >= 1
    # Nobody said what is right: that is not known, which is not 0.
    assert row["false_hit_rate"] is None
    assert row["false_hits"] is None
    assert row["right_rate"] is None
    assert document["summary"]["by_kind"]["static@1000"]["unlabelled"]["wrong"] is None
    assert {"UNLABELLED", "FEW_QUERIES"} <= {warning["code"] for warning in document["warnings"]}


def test_a_request_log_is_asked_by_its_last_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "traffic.jsonl"
    log.write_bytes(b"".join(log_lines("help-desk", 60, 0)))
    assert main([*QUICK, "--json", "-e", "static", "--prompts", str(log)]) == 0
    document = json.loads(capsys.readouterr().out)
    left_out = document["summary"]["workload"]["skipped"]
    assert left_out.keys() == {"tools"}
    assert document["rows"][0]["queries"] == 60 - left_out["tools"]
    assert document["rows"][0]["exact_hits"] > 0
    assert {"UNLABELLED", "WITHOUT_WALLS"} <= {warning["code"] for warning in document["warnings"]}


def test_one_prompt_is_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("just one question\n")
    assert main([*QUICK, "--json", "-e", "static", "--prompts", str(tmp_path / "p.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["queries"] == 1


def test_with_a_store_the_users_entries_stay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    assert main([*QUICK, "--store", str(store)]) == 0
    assert main(["cache", "stats", str(store), "--json"]) == 0
    document = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert document["summary"]["entries"] == 0
    assert document["summary"]["embedder"] == "static"


@pytest.fixture(scope="module")
def adaptive() -> Result:
    return bench.run(bench.BenchPlan(lookups=60, warmup=5, policy="adaptive", target=0.05))


def test_a_taught_policy_is_timed_beside_the_static_cutoff(adaptive: Result) -> None:
    for row in adaptive.rows:
        for part in policy.DECISION_PARTS:
            over = row["over_static"][part]
            for prefix in ("", "static_"):
                assert row[f"{prefix}{part}_us"]["p50"] > 0
            assert over["interval"][0] <= over["ratio"] <= over["interval"][1]
            low, high = over["difference_us_interval"]
            assert low <= over["difference_us"] <= high
    assert "What the adaptive policy costs" in to_markdown(view(adaptive))


def test_it_has_learned_before_it_is_timed(adaptive: Result) -> None:
    lesson = adaptive.summary["lessons"]["static"]
    assert lesson["labels"] > 1_000
    assert lesson["hits"] > lesson["false_hits"]
    rows = {row["embedder"]: row for row in adaptive.rows}
    assert rows["static"]["semantic_hits"] > 0
    # The stub tells nothing apart: it serves nothing, and that is said.
    assert rows["hash-v1"]["semantic_hits"] == 0
    (cold,) = [warning for warning in adaptive.warnings if warning.code == "COLD"]
    assert "hash-v1" in cold.message
    assert not adaptive.summary["lessons"]["hash-v1"]["serves"]


def test_a_static_bench_times_no_other_policy(result: Result) -> None:
    assert not any("over_static" in row or "decide_us" in row for row in result.rows)
    assert "lessons" not in result.summary


def test_both_policies_are_asked_of_the_same_entries() -> None:
    embedder = make_embedder("static")
    cache = Cache(embedder=embedder, policy=AdaptivePolicy())
    stored = [f"how do I {verb} the {thing}" for verb in ("clean", "sell", "paint") for thing in ("boat", "wall")]
    for text in stored:
        cache.put(text_request(text), Completion(b"a"))
    asked = [f"{text} quickly" for text in stored]
    requests, vectors = [text_request(text) for text in asked], embedder.embed_many(asked)
    arms = policy.decision_arms(cache, 0.5, bench.index_maker("exact"), requests, vectors)
    assert set(arms) == {"decide", "policy", "nearest", *(f"static_{part}" for part in policy.DECISION_PARTS)}
    for request, vector, pair, text in zip(
        requests, vectors, arms["static_search"].inputs, arms["static_lookup"].inputs, strict=True
    ):
        ours = cache.match(request, vector).decision
        for found in (arms["static_search"].call(pair), arms["static_lookup"].call(text)):
            assert isinstance(found, Lookup)
            assert isinstance(found.decision, Decision)
            assert found.decision.entry == ours.entry
            assert found.decision.cutoff == 0.5
    # Each policy gets as many neighbours as it asks for.
    assert len(arms["decide"].inputs[0][1]) == len(stored) <= AdaptivePolicy.candidates
    assert len(arms["static_decide"].inputs[0][1]) == 1


def test_a_store_keeps_the_policy_it_has(tmp_path: Path) -> None:
    embedder = make_embedder("static")
    taught = AdaptivePolicy(version="the user's")
    store = SqliteStore(tmp_path / "s.db", embedder=embedder)
    store.save("policy", taught.state())
    store.close()
    found = bench.run(
        bench.BenchPlan(store=str(tmp_path / "s.db"), lookups=5, warmup=0, policy="adaptive", target=0.05)
    )
    assert found.rows[0]["semantic_hits"] > 0  # the bench's own policy, not the store's cold one
    store = SqliteStore(tmp_path / "s.db", embedder=embedder)
    assert store.saved("policy") == json.loads(json.dumps(taught.state()))
    store.close()


@pytest.mark.parametrize("mistake", [{"policy": "naive"}, {"policy": "adaptive", "target": 0.9}])
def test_policies_that_cannot_be_benched(mistake: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        bench.run(bench.BenchPlan(embedders=("hash-v1",), lookups=5, warmup=0, **mistake))  # type: ignore[arg-type]
    assert raised.value.hint
