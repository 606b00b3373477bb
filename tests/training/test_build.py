"""The bundled model is the one that was recorded; a build writes whole folders and nothing else."""

import importlib.util
import json
import re
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models

from recall_cli.cache.embed.registry import MODEL_FILES, bundled_folder, make_embedder, reference_model
from recall_cli.errors import EmbedderError, RecallError, UsageError
from recall_cli.measure.embedder import folder as model_folder
from training import build

BUNDLED = bundled_folder()
TEXTS = ["how do I reset my password?", "Ünïcode 漢字 🙂", "x", "cancel my card " * 300]


@pytest.fixture(scope="module")
def record():
    return json.loads((BUNDLED / "digests.json").read_text())


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a network connection was tried")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", MODEL_FILES)
def test_bundled_files_match_their_digests(record, name):
    assert model_folder.digest(BUNDLED / name) == record["files"][name]


def test_model_page_names_every_digest(record):
    page = (BUNDLED / "MODEL.md").read_text(encoding="utf-8")
    for facts in [*record["files"].values(), record["teacher"]]:
        assert facts["sha256"] in page
        assert facts["blake3"] in page
    for package, version in record["packages"].items():
        assert f"{package} {version}" in page


def test_no_path_of_a_machine_is_shipped():
    for name in ("config.json", "digests.json", "MODEL.md", "tokenizer.json"):
        assert not re.search(r"(?<![\w.])/(home|tmp|root|usr|work|opt)/", (BUNDLED / name).read_text(encoding="utf-8"))


def test_bundled_model_loads_offline_and_gives_unit_vectors(no_network):
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(BUNDLED)
    vectors = model.encode(TEXTS)
    assert model.normalize
    assert model.embedding.dtype == np.int8
    assert model.embedding.shape == (29_525, 256)
    assert vectors.shape == (len(TEXTS), 256)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    paraphrase, stranger = model.encode(["I forgot my password, how can I reset it", "book a table for two in Rome"])
    assert vectors[0] @ paraphrase > vectors[0] @ stranger + 0.2


@given(hnp.arrays(np.float32, (7, 5), elements=st.floats(-64, 64, width=32)))
@example(np.full((7, 5), 1e-45, dtype=np.float32))
def test_quantise_is_within_half_a_step(table):
    cells, scales = model_folder.quantise(table)
    assert cells.dtype == np.int8
    assert scales.dtype == np.float32
    assert cells.min() >= -127
    assert np.all(np.abs(cells * np.float64(scales)[:, np.newaxis] - table) <= scales[:, np.newaxis] * 0.5001)


@given(hnp.arrays(np.float32, (7, 5), elements=st.floats(-64, 64, width=32)))
def test_quantise_gives_every_row_the_least_scale_of_8_bits(table):
    scales = model_folder.quantise(table)[1].astype(np.float64)
    least = np.maximum(np.abs(table).max(axis=1) / np.float32(127), np.finfo(np.float32).tiny)
    assert np.all(least <= scales)
    assert np.all(scales < least * (1 + 1 / 128))
    fraction = np.frexp(scales)[0] * 256
    np.testing.assert_array_equal(fraction, np.rint(fraction))


def test_quantise_rounds_half_to_even_and_survives_zeros():
    cells, scales = model_folder.quantise(np.array([[127.0, 0.5, 1.5, -2.5]], dtype=np.float32))
    assert scales.tolist() == [1]
    assert cells.tolist() == [[127, 0, 2, -2]]
    assert not model_folder.quantise(np.zeros((2, 2), dtype=np.float32))[0].any()


def test_quantise_treats_a_small_row_as_well_as_a_large_one():
    row = np.random.default_rng(0).normal(size=(1, 256)).astype(np.float32)
    cells, scales = model_folder.quantise(np.concatenate([row, row / 1024]))
    np.testing.assert_array_equal(cells[0], cells[1])
    assert scales[0] == scales[1] * 1024


def test_every_bundled_row_keeps_its_own_scale():
    tensors = load_file(BUNDLED / "model.safetensors")
    cells, scales = tensors["embeddings"], tensors["weights"]
    assert scales.shape == (len(cells),)
    assert scales.dtype == np.float32
    assert np.abs(cells).max(axis=1).min() >= 126
    # A token that fills a text adds up without rounding, whichever way it is summed.
    table = cells.astype(np.float32) * scales[:, np.newaxis]
    np.testing.assert_array_equal(np.repeat(table[:64, np.newaxis], 512, axis=1).sum(axis=1), table[:64] * 512)


def test_numbers_and_punctuation_are_told_apart():
    static = make_embedder("static")
    one, three = static.embed_many(["thing number 1", "thing number 3"])
    assert one @ three < 0.99995
    marks = static.embed_many(list("0123456789!?.,"))
    np.testing.assert_allclose(np.linalg.norm(marks, axis=1), 1, atol=1e-6)
    assert np.max(marks @ marks.T - np.eye(len(marks))) < 0.99


def test_the_model_to_time_against_has_no_weights_and_the_same_vectors(no_network):
    from model2vec import StaticModel

    model, stock = reference_model(), StaticModel.from_pretrained(BUNDLED)
    assert model.weights is None
    assert model.token_mapping is None
    assert model.embedding.dtype == np.float32
    assert (model.normalize, model.max_length) == (stock.normalize, stock.max_length)
    texts = [*TEXTS, "1", "!", "", "word " * 600]
    np.testing.assert_allclose(model.encode(texts), stock.encode(texts), atol=1e-6)
    np.testing.assert_allclose(model.encode(texts), make_embedder("static").embed_many(texts), atol=1e-6)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A build whose teacher is a stand-in: everything but the distillation is real."""
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    for name in MODEL_FILES:
        (teacher / name).write_text("{}")
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    table = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    config = {"model_type": "model2vec", "normalize": True, "tokenizer_name": str(teacher)}
    monkeypatch.setattr(build, "need_extra", lambda: None)
    monkeypatch.setattr(build, "_distil", lambda *_: (table, tokenizer, dict(config)))
    monkeypatch.setattr(build, "_cpu", lambda: "test")
    monkeypatch.setattr(build, "PACKAGES", ("numpy",))
    return lambda out: build.build(out, teacher=str(teacher), dims=4)


def test_build_twice_gives_the_same_bytes(recipe, tmp_path):
    first, second = recipe(tmp_path / "a"), recipe(tmp_path / "b" / "deep")
    assert first.rows == second.rows
    for name in (*MODEL_FILES, "digests.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / "deep" / name).read_bytes()


def test_build_writes_readable_files_that_name_no_path(recipe, tmp_path):
    from model2vec import StaticModel

    result = recipe(tmp_path / "out")
    assert {row["file"] for row in result.rows} == set(MODEL_FILES)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in (tmp_path / "out").iterdir())
    assert str(tmp_path) not in (tmp_path / "out" / "config.json").read_text()
    model = StaticModel.from_pretrained(tmp_path / "out")
    table = build._distil()[0]
    np.testing.assert_allclose(model.embedding * model.weights[:, np.newaxis], table, atol=model.weights.max() / 2)
    vector = model.encode("hello")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert vector @ table[1] > 0.999 * np.linalg.norm(table[1])


def test_rebuild_replaces_the_files_and_keeps_the_page(recipe, tmp_path):
    out = tmp_path / "out"
    recipe(out)
    (out / "MODEL.md").write_text("by hand")
    (out / "model.safetensors").write_bytes(b"damaged")
    result = recipe(out)
    assert (out / "MODEL.md").read_text() == "by hand"
    assert (out / "model.safetensors").stat().st_size == result.rows[0]["bytes"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "teacher"]


def test_a_failed_write_leaves_the_old_folder(recipe, tmp_path, monkeypatch):
    out = tmp_path / "out"
    recipe(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    rename = Path.rename

    def fail(self, target):
        if self.name == "new":
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(RecallError, match="disk full"):
        recipe(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "teacher"]


@pytest.mark.parametrize("names", [["notes.txt"], ["config.json"], [*MODEL_FILES, "thesis.doc"]])
def test_build_refuses_a_folder_that_is_not_a_model(recipe, tmp_path, names):
    out = tmp_path / "mine"
    out.mkdir()
    for name in names:
        (out / name).write_text("precious")
    with pytest.raises(UsageError, match="no model folder"):
        recipe(out)
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert all(path.read_text() == "precious" for path in out.iterdir())


def test_build_refuses_a_file_as_target(recipe, tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UsageError, match="not a folder"):
        recipe(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be made"):
        recipe(tmp_path / "file" / "below")


def test_build_refuses_more_dimensions_than_the_teacher_has(recipe, tmp_path):
    with pytest.raises(UsageError, match="fewer than --dims 9"):
        build.build(tmp_path / "out", teacher=str(tmp_path / "teacher"), dims=9)
    assert not (tmp_path / "out").exists()


def test_without_torch_the_error_names_the_extra(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    with pytest.raises(UsageError, match="torch") as error:
        build.build(tmp_path / "out")
    assert "pip install '.[train]'" in error.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("teacher", "said"), [("no-such-teacher", "no teacher"), ("numpy", "has no")])
def test_a_teacher_without_weights_is_named(teacher, said):
    with pytest.raises(EmbedderError, match=said) as error:
        build.teacher_folder(teacher)
    assert error.value.hint


@pytest.mark.parametrize(("dims", "sif"), [(0, 1e-4), (256, 0.0), (256, 1.0)])
def test_settings_that_make_no_sense(tmp_path, dims, sif):
    with pytest.raises(UsageError, match="--dims"):
        build.build(tmp_path / "out", dims=dims, sif=sif)
