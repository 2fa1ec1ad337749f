"""Which culprits are named, over many looks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.runs.hangs import NamedCulprits
from otel_straggler.model.alert import MAX_NAMED


@given(st.lists(st.sets(st.integers(0, 60), max_size=60), max_size=12))
def test_whoever_is_named_stays_so_for_as_long_as_he_is_a_culprit(looks: list[set[int]]) -> None:
    """As many as may be are named, culprits only, each once and in order."""
    indexes = NamedCulprits()
    before: set[int] = set()
    for culprits in looks:
        named = indexes.select(np.array(sorted(culprits), np.int64))
        assert named == sorted(set(named))
        assert set(named) <= culprits
        assert len(named) == min(len(culprits), MAX_NAMED)
        assert before & culprits <= set(named)
        before = set(named)


def test_who_has_been_a_culprit_longest_comes_next() -> None:
    """Then the lowest rank."""
    indexes = NamedCulprits()
    indexes.select(np.arange(0, 20))
    indexes.select(np.r_[0:20, 30:32])
    assert indexes.select(np.r_[0:20, 25:32])[-1] == 19
    assert indexes.select(np.r_[3:20, 25:32])[-3:] == [25, 30, 31]
