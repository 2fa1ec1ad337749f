"""Ranks and their places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import ConfigError
from otel_straggler.recordings.columns import PARALLEL
from otel_straggler.simulate.plan import Layout

sizes = st.integers(1, 4)
layouts = st.builds(
    lambda tp, cp, ep, pp, dp: Layout(tp=tp, cp=cp, ep=ep, pp=pp, dp=dp * ep),
    sizes, sizes, sizes, sizes, sizes,
)  # fmt: skip


def test_ranks_are_numbered_tensor_first_and_pipeline_last():
    """As Megatron numbers them, so that a layout on paper can be found again."""
    layout = Layout.parse("tp2,cp2,pp3,dp4")
    assert layout.ranks == 48
    indexes = [dict(layout.index(rank)) for rank in (0, 1, 2, 4, 16)]
    order = ("tensor", "context", "data", "pipeline")
    assert [tuple(index[name] for name in order) for index in indexes] == [
        (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1),
    ]  # fmt: skip


@given(layouts)
def test_no_two_ranks_stand_in_one_place(layout):
    """The place tells ranks apart without the expert index: experts take no ranks of their own."""
    indexes = [
        tuple(p for p in layout.index(rank) if p[0] != "expert") for rank in range(layout.ranks)
    ]
    assert len(set(indexes)) == layout.ranks == layout.tp * layout.cp * layout.pp * layout.dp
    assert {name for index in indexes for name, _ in index} <= set(PARALLEL.values())


@given(layouts)
def test_what_a_layout_is_written_as_is_read_as_the_same(layout):
    """In any order, with or without blanks."""
    parts = str(layout).split(",")
    assert Layout.parse(" , ".join(reversed(parts)).upper()) == layout
    assert Layout.parse(str(layout), ranks=layout.ranks) == layout


def test_the_data_dimension_follows_from_the_ranks():
    """Nobody has to divide."""
    assert Layout.parse("tp8,pp4", ranks=1024) == Layout(tp=8, pp=4, dp=32)
    assert Layout.parse("ep2,tp4").dp == 2


@pytest.mark.parametrize(
    ("text", "ranks", "expected"),
    [
        ("", None, "parts such as"),
        ("tp8,xy3", None, "parts such as"),
        ("tp8,tp4", None, "tp only once"),
        ("tp0", None, "tp of at least 1"),
        ("dp6,ep4", None, "multiple of ep"),
        ("tp3", 16, "16 ranks, not 15"),
        ("tp8,dp3", 16, "16 ranks, not 24"),
        ("dp9999999", None, "at most 1,000,000 ranks"),
    ],
)
def test_a_layout_that_cannot_be_says_why(text, ranks, expected):
    """Place, value, expectation, remedy."""
    with pytest.raises(ConfigError, match=expected) as raised:
        Layout.parse(text, ranks)
    assert "--layout" in str(raised.value)
