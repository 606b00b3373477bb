"""Values in memory within a size: the ones used last, and whatever comes last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.entries import ByteLRU


@given(st.lists(st.tuples(st.sampled_from(["keep", "get", "forget"]), st.integers(0, 6), st.integers(0, 5))))
def test_it_holds_the_values_used_last(steps: list[tuple[str, int, int]]) -> None:
    recent: ByteLRU[str] = ByteLRU(10, len)
    model: dict[int, str] = {}  # in the order of use
    for step, id, size in steps:
        known = model.pop(id, None)
        if step == "keep":
            recent.keep(id, "x" * size)
            model[id] = "x" * size
            while sum(map(len, model.values())) > 10 and len(model) > 1:
                del model[next(iter(model))]
        elif step == "get":
            assert recent.get(id) == known
            if known is not None:
                model[id] = known
        else:
            recent.forget(id)
        assert {id: recent._kept[id] for id in range(7) if id in recent} == model
        assert recent._size == sum(map(len, model.values()))


def test_one_that_is_larger_than_all_room_stays_until_the_next_comes() -> None:
    recent: ByteLRU[str] = ByteLRU(10, len)
    recent.keep(1, "x" * 11)
    assert recent.get(1) == "x" * 11
    recent.keep(2, "")
    assert 1 not in recent
    recent.clear()
    assert (2 in recent, recent._size) == (False, 0)
