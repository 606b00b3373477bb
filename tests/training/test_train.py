"""Both fits on small numbers: they learn what they are meant to, hold still what they must, and repeat."""

import numpy as np
import pytest

from training.train import NUMBERS, Lessons, Steps, Trainer, start, tempered

torch = pytest.importorskip("torch", reason="needs the extra train")

WORDS, DIMS = 60, 8


@pytest.fixture(scope="module")
def world():
    """A teacher that knows a direction for every word but the first ten, which mean nothing to it."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(WORDS, 12))
    truth[:10] = 0
    raw = rng.normal(size=(WORDS, DIMS)).astype(np.float32)
    ids = [rng.choice(WORDS, rng.integers(3, 8), replace=False).tolist() for _ in range(2_000)]
    vectors = np.stack([truth[row].sum(axis=0) + 1e-6 for row in ids])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return raw, Lessons(ids, vectors.astype(np.float16))


STEPS = Steps(epochs=30, rate=1e-2, token_rate=2e-2, weigh_steps=60, weigh_rate=1e-2, weigh_token_rate=3e-2)


def silent(done, total, what):
    assert 0 <= done <= total


def trained(world):
    table, directions = start(world[0], world[1], DIMS)
    trainer = Trainer(table, directions, world[1])
    before = trainer.held_out_cosine()
    trainer.distil(STEPS, silent)
    return trainer, before


def test_distilling_nears_the_teacher_on_sentences_it_never_saw(world):
    trainer, before = trained(world)
    assert trainer.held_out_cosine() > before + 0.05
    norms = np.linalg.norm(trainer.table.table(), axis=1)
    assert np.median(norms[:10]) < np.median(norms[10:])


def test_a_fit_repeats_to_the_bit(world):
    one, two = (trained(world)[0].table.table() for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_weighing_raises_what_decides_and_turns_little(world):
    trainer, _ = trained(world)
    before = trainer.table.table()
    frame = list(range(20, 40))
    rng = np.random.default_rng(1)
    groups = []
    for _ in range(200):
        decides, other = rng.choice(np.arange(10, 20), 2, replace=False).tolist()
        one, two, three = (rng.choice(frame, 4, replace=False).tolist() for _ in range(3))
        groups.append([[decides, *one], [decides, *two], [decides, *three], [other, *one], [other, *two]])
    trainer.weigh(groups, STEPS, silent)
    after = trainer.table.table()
    growth = np.linalg.norm(after, axis=1) / np.linalg.norm(before, axis=1)
    assert growth[10:20].min() > growth[20:40].max()
    cosines = np.einsum("ij,ij->i", before, after) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    assert cosines.min() > 0.9


def test_weighing_is_the_same_after_a_build_that_went_on_from_the_distilled_stage(world):
    one, _ = trained(world)
    other = Trainer(one.table, one.directions, one.lessons)
    for name in ("scale", "shift", "turn", "lean"):
        assert getattr(other.table, name) is getattr(one.table, name)
    groups = [[[10 + i % 10, 20 + i % 20], [10 + i % 10, 21], [10 + i % 10, 22], [30, 21], [31, 22]] for i in range(40)]
    parts = [part.detach().clone() for part in (one.table.scale, one.table.shift, one.table.lean)]
    one.weigh(groups, STEPS, silent)
    first = one.table.table()
    for part, kept in zip((one.table.scale, one.table.shift, one.table.lean), parts, strict=True):
        part.data = kept
    other.weigh(groups, STEPS, silent)
    np.testing.assert_array_equal(first, other.table.table())


def test_no_token_loses_weight_and_numbers_gain():
    before = np.array([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    after = np.array([[6.0, 8.0], [1.5, 2.0], [0.0, 5.0], [0.0, 0.0]], dtype=np.float32)
    found = tempered(before, after, np.array([False, False, True, True]))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [10, 5, 5 * np.exp(NUMBERS), 0], rtol=1e-6)
    np.testing.assert_allclose(found[2] / np.linalg.norm(found[2]), [0, 1], atol=1e-6)


def test_held_out_sentences_are_in_no_batch(world, monkeypatch):
    seen = set()
    taught = Trainer._taught

    def watched(self, beside, pull):
        seen.update(beside.reshape(-1).tolist())
        return taught(self, beside, pull)

    monkeypatch.setattr(Trainer, "_taught", watched)
    trained(world)
    assert max(seen) < world[1].taught == 1_800
    assert len(seen) > 1_700
