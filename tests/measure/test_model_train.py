"""Both fits on small numbers: they learn what they are meant to, hold still what they must, and repeat."""

import numpy as np
import pytest

from recall_cli.measure.model_train import Lessons, Steps, Trainer, start

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


def test_weighing_raises_what_decides_and_turns_nothing(world):
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
    assert cosines.min() > 0.9999


def test_held_out_sentences_are_in_no_batch(world, monkeypatch):
    seen = set()
    taught = Trainer._taught
    monkeypatch.setattr(Trainer, "_taught", lambda self, batch: seen.update(batch.tolist()) or taught(self, batch))
    trained(world)
    assert max(seen) < world[1].taught == 1_800
