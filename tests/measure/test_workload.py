"""The bundled definitions hold what they promise, and a user's own prompts are read without loss."""

import io
import json
import re
import shutil
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.measure import prompts, workload
from recall_cli.measure.prompts import Kind, Query, from_prompts
from recall_cli.measure.workload import bundled, filler, workloads_dir

TRAPS = {"negation", "number", "date", "entity", "scope", "unit", "comparison", "tense", "role", "aspect"}
PROMPTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(
    lambda text: text == text.strip() and not prompts.JSON_START.match(text) and not text.startswith("\ufeff")
)


@pytest.fixture(scope="module")
def bench():
    return bundled()


def records_of_the_file():
    lines = (workloads_dir() / "prompts.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def piped(data):
    return from_prompts("-", io.BytesIO(data if isinstance(data, bytes) else data.encode()))


def kinds(queries):
    return Counter(query.kind for query in queries)


# The bundled workload


def test_no_text_of_the_bundled_workload_occurs_twice(bench):
    texts = [query.text.casefold() for query in bench.queries]
    assert len(set(texts)) == len(texts)


def test_every_group_has_paraphrases_and_lookalikes(bench):
    for kind, most in ((Kind.REPEAT, 1), (Kind.PARAPHRASE, 3), (Kind.LOOKALIKE, 2)):
        per_seed = Counter(query.seed for query in bench.queries if query.kind is kind)
        assert set(per_seed) == set(range(len(bench.seeds)))
        assert max(per_seed.values()) <= most
    assert min(Counter(q.seed for q in bench.queries if q.kind is Kind.PARAPHRASE).values()) >= 2


def test_bundled_counts_every_text_of_the_file_once(bench):
    records = records_of_the_file()
    new = [record for record in records if record.get("new")]
    asked = kinds(bench.queries)
    assert asked[Kind.NEW] == len(new) == 150
    assert asked[Kind.REPEAT] == len(records) - len(new) == len(bench.seeds) == bench.preloaded == 150
    assert asked[Kind.PARAPHRASE] == sum(len(record.get("paraphrases", ())) for record in records)
    assert asked[Kind.LOOKALIKE] == sum(len(record.get("lookalikes", ())) for record in records)
    assert asked[Kind.UNLABELLED] == 0
    assert not bench.skipped


def test_bundled_labels_are_complete(bench):
    records = records_of_the_file()
    assert len({record["id"] for record in records}) == len(records)
    assert len({record["domain"] for record in records}) >= 8
    for query in bench.queries:
        assert (query.seed is None) == (query.kind is Kind.NEW)
        assert (query.trap in TRAPS) == (query.kind is Kind.LOOKALIKE)
        assert query.text == query.text.strip()
        if query.kind is Kind.REPEAT:
            assert query.text == bench.seeds[query.seed]


def test_no_lookalike_shares_more_words_with_another_group(bench):
    """One that is nearer to another group is likely filed under the wrong one."""

    def words(text):
        return set(re.findall(r"\w+", text.casefold()))

    def overlap(a, b):
        return len(a & b) / len(a | b)

    seeds = [words(seed) for seed in bench.seeds]
    for query in bench.queries:
        if query.kind is Kind.LOOKALIKE:
            shares = [overlap(words(query.text), seed) for seed in seeds]
            assert shares[query.seed] == max(shares), query.text


def test_should_hit_follows_the_kind():
    verdicts = {kind: Query("a", kind, None).should_hit for kind in Kind}
    assert verdicts == {
        Kind.REPEAT: True,
        Kind.PARAPHRASE: True,
        Kind.LOOKALIKE: False,
        Kind.NEW: False,
        Kind.UNLABELLED: None,
    }


# Where the definitions are


def test_the_definitions_are_found_from_any_folder(tmp_path, monkeypatch):
    before = workloads_dir()
    monkeypatch.chdir(tmp_path)
    assert workloads_dir() == before
    assert bundled().seeds


def test_an_installed_wheel_carries_the_definitions(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "recall_cli"
    shutil.copytree(workloads_dir(), package / "_workloads")
    # Another distribution's folder of that name must not be taken for ours.
    (package.parent / "workloads").mkdir()
    monkeypatch.setattr(workload, "PACKAGE", package)
    assert workloads_dir() == package / "_workloads"
    assert len(bundled().seeds) == 150
    assert len(filler(10, 0, ())) == 10


def test_missing_definitions_are_an_input_error(tmp_path, monkeypatch):
    (tmp_path / "workloads").mkdir()
    monkeypatch.setattr(workload, "PACKAGE", tmp_path / "recall_cli")
    with pytest.raises(InputError, match="missing") as caught:
        bundled()
    assert caught.value.hint


# Filler


def test_filler_is_distinct_in_any_case_and_disjoint_from_the_queries(bench):
    asked = {query.text.casefold() for query in bench.queries}
    texts = filler(100_000, 0, asked)
    assert len({text.casefold() for text in texts} | asked) == 100_000 + len(asked)
    mean_words = sum(len(text.split()) for text in texts) / len(texts)
    assert 8 <= mean_words <= 16
    assert not any(mark in text for text in texts for mark in "{}")


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 2**32))
def test_filler_of_one_seed_is_a_prefix_of_more_filler(small, more, seed):
    assert filler(small + more, seed, ())[:small] == filler(small, seed, ())


def test_filler_depends_on_the_seed_and_avoids_in_any_case():
    texts = filler(200, 1, ())
    assert filler(200, 2, ()) != texts
    kept = filler(100, 1, [text.upper() for text in texts[:100]])
    assert kept == texts[100:]


def test_filler_gives_each_template_its_turn():
    starts = Counter(text.casefold() for text in filler(750, 0, ()))
    domains = workload.toml("filler.toml")["templates"]
    templates = [template for domain in domains.values() for template in domain]
    patterns = [re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(template.casefold()))) for template in templates]
    for pattern in patterns:
        assert sum(1 for text in starts if pattern.fullmatch(text)) >= 750 // len(templates)


def test_more_filler_than_the_templates_yield_is_a_usage_error(tmp_path, monkeypatch):
    folder = tmp_path / "recall_cli" / "_workloads"
    folder.mkdir(parents=True)
    (folder / "bench.toml").write_text('filler = "filler.toml"')
    (folder / "filler.toml").write_text('[templates]\na = ["{x} {x}!"]\n[slots]\nx = ["A", "a", "b"]')
    monkeypatch.setattr(workload, "PACKAGE", tmp_path / "recall_cli")
    assert len(filler(4, 0, ())) == 4
    for n in (5, 9, 10):  # nine combinations, four of them distinct when case is ignored
        with pytest.raises(UsageError, match="yield") as caught:
            filler(n, 0, ())
        assert caught.value.hint


def test_a_slot_has_at_least_twenty_values():
    slots = workload.toml("filler.toml")["slots"]
    assert all(len({value.casefold() for value in values}) == len(values) >= 20 for values in slots.values())


# The user's own prompts


@given(st.lists(PROMPTS, min_size=1), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_plain_lines_are_replayed_in_order(prompts, newline):
    replay = piped(newline.join(prompts) + newline)
    assert [query.text for query in replay.queries] == prompts
    assert kinds(replay.queries)[Kind.UNLABELLED] == len(set(prompts)) == len(replay.seeds)
    assert replay.preloaded == 0
    assert [q.text for q in replay.queries if q.kind is Kind.UNLABELLED] == list(replay.seeds)
    assert all(replay.seeds[q.seed] == q.text for q in replay.queries if q.kind is Kind.REPEAT)


@given(st.lists(PROMPTS, min_size=1), st.sampled_from(["text", "prompt", "question", "input", None]))
def test_plain_lines_and_jsonl_say_the_same(prompts, name):
    lines = [json.dumps({name: text} if name else text) for text in prompts]
    assert piped("\n".join(lines)).queries == piped("\n".join(prompts)).queries


def test_labels_are_kept_and_unlabelled_lines_follow(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"text": "first?"}\n'
        '{"text": "a?", "paraphrases": ["A, please?"], "lookalikes": [{"text": "not a?", "trap": "negation"}]}\n'
        '{"text": "other?", "new": true}\n'
        '"a?"\n'
        '{"id": 7}\n\n'
        '"first?"\n'
    )
    mine = from_prompts(str(path), io.BytesIO())
    assert mine.seeds == ("a?", "first?")
    assert mine.preloaded == 1
    assert mine.queries == (
        Query("first?", Kind.UNLABELLED, None),
        Query("a?", Kind.REPEAT, 0),
        Query("A, please?", Kind.PARAPHRASE, 0),
        Query("not a?", Kind.LOOKALIKE, 0, "negation"),
        Query("other?", Kind.NEW, None),
        Query("a?", Kind.REPEAT, 0),
        Query("first?", Kind.REPEAT, 1),
    )
    assert mine.skipped == {"without a prompt": 1, "blank": 1}
    assert mine.source == str(path)


def test_the_bundled_prompts_read_as_a_users_file_keep_their_labels(bench):
    path = workloads_dir() / "prompts.jsonl"
    assert from_prompts(str(path), io.BytesIO()).queries == bench.queries
    assert piped(path.read_bytes()).queries == bench.queries


def test_text_that_only_resembles_json_is_text(tmp_path):
    assert piped('[INST] say "hi" [/INST]\n').queries[0].text == '[INST] say "hi" [/INST]'
    assert len(piped("[1] and [2]\n[3]").queries) == 2
    path = tmp_path / "braces.txt"
    path.write_text("{name} asks for a refund\n")
    assert from_prompts(str(path), io.BytesIO()).queries[0].text == "{name} asks for a refund"


def test_a_byte_order_mark_is_no_part_of_a_prompt():
    assert piped("\ufeffhello there".encode()).queries[0].text == "hello there"


def test_a_line_separator_inside_a_json_string_ends_no_line():
    assert piped('"one\u2028two"'.encode()).queries[0].text == "one\u2028two"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "standard input holds no prompt"),
        (b"\n  \n", "no prompt"),
        (b'{"id": 1}\n', "no prompt"),
        (b'[{"text": "in an array"}]', "no prompt"),
        (b"fine\nnot \0 fine\n", "line 2"),
        ("h\u00e9llo".encode("utf-16"), "line 1"),
        (b"fine\nfine\n\xff\n", "line 3 has the byte 0xff"),
        (b'{"text": "fine"}\n{"text": \n', "line 2 is not valid JSON"),
        (b'{"text": "a", "paraphrases": "b"}', "line 1: the labels"),
        (b'{"text": "a", "paraphrases": [""]}', "line 1: the labels"),
        (b'{"text": "a", "lookalikes": ["b"]}', "line 1: the labels"),
        (b'{"text": "a", "lookalikes": [{"trap": "unit"}]}', "line 1: the labels"),
        (b'{"text": "a", "lookalikes": null}', "line 1: the labels"),
        (b'{"text": "a", "lookalikes": [{"text": "b", "trap": 7}]}', "line 1: the labels"),
        (b'{"text": "a", "lookalikes": [{"text": "b"}]}\n{"text": "b", "paraphrases": []}', 'line 1: "b" is labelled'),
        (b'{"text": "a", "paraphrases": ["b"]}\n{"text": "b", "paraphrases": []}', 'line 1: "b" is labelled'),
        (b'{"text": "a"}\n{"text": "a", "new": true}', 'line 2: "a" is labelled new'),
    ],
)
def test_input_that_cannot_be_right_is_an_input_error(data, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        piped(data)
    assert str(caught.value).endswith((".", ")."))
    assert caught.value.hint


@pytest.mark.parametrize("name", ["absent.txt", ".", "nul\0name"])
def test_a_path_that_cannot_be_read_is_an_input_error(tmp_path, name):
    with pytest.raises(InputError, match="cannot be read") as caught:
        from_prompts(str(tmp_path / name), io.BytesIO())
    assert caught.value.hint
