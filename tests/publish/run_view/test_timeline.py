"""Columns of bytes: what they mean, and how ranks that come and go are shown."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.views.numbers import as_bytes, from_bytes, own_slowdowns, rounded
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.rank_json import is_known, rank_json
from otel_straggler.collector.views.timeline import column_of, timeline_json

from . import made


def bytes_of(reported: dict[str, Any]) -> np.ndarray:
    """(columns, ranks), read as a page reads it."""
    raw = np.frombuffer(base64.b64decode(reported["values"]), np.uint8)
    return raw.reshape(len(reported["columns"]), len(reported["ranks"]))


@given(st.lists(st.floats(0.26, 3.9), min_size=1, max_size=50))
def test_a_byte_is_within_half_a_percent_and_a_bit(values: list[float]) -> None:
    """2 ** ((byte - 128) / 64): one step is 1.09 %."""
    result = from_bytes(as_bytes(np.array(values)))
    assert np.all(np.abs(result / np.array(values) - 1.0) < 0.0055)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_any_number_has_a_byte(values: list[float]) -> None:
    """0 is no data; what is off the scale stands at its end."""
    array = np.array(values, np.float64)
    destinations = as_bytes(array)
    is_data = np.isfinite(array) & (array > 0)
    assert ((destinations > 0) == is_data).all()


@given(st.lists(st.floats(1e-12, 1e12) | st.floats(-1e12, -1e-12), max_size=60))
def test_numbers_have_four_digits(values: list[float]) -> None:
    """So that JSON is short; each is as near as four digits can be."""
    for value, reported in zip(values, rounded(np.array(values, np.float64)), strict=True):
        assert reported == float(f"{reported:.4g}")
        assert abs(reported - value) <= 0.000501 * abs(value)


def test_what_is_no_number_is_null() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, 1e300, 1e-300])
    assert rounded(values)[:4] == [None, None, None, 0.0]
    assert all(value is not None for value in rounded(values)[4:])


def test_columns_are_slowdowns_of_windows() -> None:
    columns = [
        column_of(made.table_of(4), 7, 0),
        column_of(made.table_of(4, slow={2: 2.0}), 8, 0),
    ]
    reported = timeline_json(columns, run_id="run", group="g")
    assert (reported["first"], reported["last"], reported["encoding"]) == (7, 8, "uint8-log2")
    assert reported["ranks"] == [0, 1, 2, 3]
    assert bytes_of(reported).tolist() == [[128] * 4, [128, 128, 192, 128]]
    assert reported["columns"][0] == {
        "seq": 7,
        "at_s": made.NOW_S - 5,
        "first_step": 40,
        "last_step": 59,
        "n_steps": 20,
    }


def test_a_world_that_changes_its_size_is_shown_with_all_its_ranks() -> None:
    """Ranks that were not there have no data."""
    small, large = column_of(made.table_of(2), 1, 0), column_of(made.table_of(4), 2, 0)
    reported = timeline_json([large, small, large], run_id="run", group="")
    assert reported["ranks"] == [0, 1, 2, 3]
    assert bytes_of(reported).tolist() == [[128] * 4, [128, 128, 0, 0], [128] * 4]


def test_a_section_that_a_window_does_not_have_is_no_data() -> None:
    column = column_of(made.table_of(2), 1, 0)
    fewer = column_of(made.table_of(2, sections=made.SECTIONS[:2]), 2, 0)
    reported = timeline_json([column, fewer], run_id="run", group="", section="gradient_sync")
    assert bytes_of(reported).tolist() == [[128, 128], [0, 0]]


def test_no_columns_are_an_empty_answer() -> None:
    reported = timeline_json([], run_id="run", group="")
    assert (reported["first"], reported["ranks"], reported["values"]) == (None, [], "")


def test_roles_are_compared_among_themselves() -> None:
    """A critic is not slow because actors have less to do."""
    step_s = np.array([[1.0], [1.0], [5.0], [5.0]])
    result = own_slowdowns(step_s, made.SECTIONS[1:2], np.array([0, 0, 1, 1]))
    assert result.overall.tolist() == [1.0] * 4


def test_a_rank_in_detail() -> None:
    """Its times beside those of its peers, its past, its signs of life."""
    table = made.table_of(8, slow={5: 1.5})
    world = made.seen(made.verdict(), table=table)
    columns = [column_of(made.table_of(8), 1, 0), column_of(table, 2, 0)]
    result = rank_json(world, 5, columns, ResponseMeta(version="1"))
    forward = next(each for each in result["sections"] if each["name"] == "forward")
    assert forward["n_peers"] == 7
    assert (forward["step_s"], forward["peers_step_s"], forward["slowdown"]) == (0.15, 0.1, 1.5)
    assert result["gpu"] == {
        "tier": "off",
        "reason": "asked",
        "uuid": "GPU-5",
        "model": "NVIDIA H200",
        "missing": 0,
        "lost": {},
    }
    assert (result["node"], result["state"], result["step"]) == ("node-0", "ok", 61)
    assert result["parallel"] == {"data": 5, "pipeline": 0}
    assert result["history"]["sections"][:2] == ["", "data_loading"]
    past = result["history"]["slowdowns"][0]
    assert past[0] == 1.0
    assert abs(past[1] - 1.5) < 0.01
    assert [each["rank"] for each in result["verdicts"]] == [5]
    assert result["commands"][0] == "otel-straggler verdict explain 5 --run run"


def test_a_rank_that_never_spoke_is_known_if_it_is_expected() -> None:
    world = replace(made.seen(table=made.table_of(2)), hang=made.result_of(4))
    assert is_known(world, 3)
    assert not is_known(world, 4)
    result = rank_json(world, 3, [], ResponseMeta(version="1"))
    assert (result["state"], result["sections"], result["step"]) == ("missing", [], None)
