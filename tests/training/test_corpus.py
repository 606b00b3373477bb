"""What the bundled table is fitted to: cleared sources, each text once, none that it is evaluated on."""

from itertools import islice
from pathlib import Path

import pytest

from recall_cli.cache.embed.registry import bundled_folder
from recall_cli.errors import InputError
from recall_cli.measure.embedder import model_eval
from training import corpus as model_corpus
from training import wordnet
from training.corpus import SOURCES, Source, contrasts, corpus, text_hash

LICENCE = "  1 This software and database is being provided to you under a licence.\n"
NOUN = (
    '00001740 03 n 02 car 0 motor_vehicle 0 001 @ 00002137 n 0000 | a vehicle; "he needs a car to get to work"; "no"\n'
)
ADJECTIVE = "00003553 00 s 01 galore(ip) 0 000 | in great numbers\n"


@pytest.fixture
def folder(tmp_path):
    for name in wordnet.FILES:
        (tmp_path / name).write_text(LICENCE, encoding="latin-1")
    (tmp_path / "data.noun").write_text(LICENCE + NOUN, encoding="latin-1")
    (tmp_path / "data.adj").write_text(LICENCE + ADJECTIVE + ADJECTIVE.replace("great", "caf\xe9"), encoding="latin-1")
    return tmp_path


def test_wordnet_files_are_read_without_their_licence(folder):
    noun, adjective, _ = wordnet.synsets(folder)
    assert noun.words == ("car", "motor vehicle")
    assert noun.gloss == "a vehicle"
    assert noun.examples == ("he needs a car to get to work", "no")
    assert adjective.words == ("galore",)
    assert "car, motor vehicle" in list(wordnet.sentences(folder))


def test_wordnet_that_is_missing_names_its_package(tmp_path):
    with pytest.raises(InputError, match=r"data\.noun") as error:
        list(wordnet.sentences(tmp_path))
    assert "wordnet-base" in error.value.hint


def source(*texts):
    return Source("made", "ours", lambda _: iter(texts))


def test_texts_come_once_and_evaluation_texts_never(monkeypatch, folder):
    monkeypatch.setattr(model_corpus, "evaluation_hashes", lambda _: frozenset([text_hash("Freeze my card, now!")]))
    given = source("freeze my card now", "A sentence of ours.", "a  SENTENCE of ours", "short", "x" * 301)
    found = corpus(folder, None, [given, source("A sentence of ours", "Another one of them.")])
    assert sorted(found.texts) == ["A sentence of ours.", "Another one of them."]
    assert found.left_out == 1
    assert [part["sentences"] for part in found.sources] == [1, 1]


def test_the_order_and_the_digest_follow_the_texts_alone(monkeypatch, folder):
    monkeypatch.setattr(model_corpus, "evaluation_hashes", lambda _: frozenset())
    texts = [f"sentence number {i} of them" for i in range(50)]
    one, two = (corpus(folder, None, [source(*texts)]) for _ in range(2))
    assert one == two
    assert one.texts != tuple(texts)
    assert corpus(folder, None, [source(*texts[1:])]).digest != one.digest


def test_every_source_is_cleared_by_name():
    assert all(part.name and part.licence for part in SOURCES)
    page = (bundled_folder() / "MODEL.md").read_text(encoding="utf-8")
    assert all(part.licence.split()[0] in page for part in SOURCES)


def test_docstrings_are_sentences_of_the_library():
    found = list(islice(model_corpus.docstrings(Path()), 3_000))
    assert any("argparse" in text.lower() or "parser" in text for text in found)
    assert not any("\n" in text for text in found)


@pytest.mark.shared
def test_evaluation_texts_are_known_by_hash():
    folder = model_eval.default_folder()
    if folder is None:
        pytest.skip("no evaluation data beside this checkout")
    hashes = model_corpus.evaluation_hashes(folder)
    for labelled in model_eval.load(folder):
        assert text_hash(labelled.test[0][0].upper() + " ...") in hashes
    assert text_hash("how do I bake bread on the moon") not in hashes


def test_groups_are_paraphrases_and_traps_of_the_train_wordings():
    groups = contrasts(60, 1)
    assert groups == contrasts(60, 1)
    assert groups[:20] == contrasts(20, 1)
    for group in groups:
        assert group.asked.casefold() != group.trap.casefold()
        assert len({group.asked, group.reworded}) == 2
    held_out = {text for group in contrasts(60, 1, "held-out") for text in (group.asked, group.reworded)}
    assert not held_out & {text for group in groups for text in (group.asked, group.reworded)}
