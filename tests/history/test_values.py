"""Windows and verdicts as they are stored and read again."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.codec import (
    WindowSummary,
    decode_blob,
    encode_blob,
    read_verdict,
    read_window,
    verdict_text,
    window_value,
)
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import Verdict


def there_and_back(window: Any) -> WindowSummary:
    return read_window(decode_blob(encode_blob(window_value(window)), where="x"), where="x")


def test_a_window_is_read_again_to_five_digits(kit: Any) -> None:
    """Medians, times per step, scores and counts of every rank and section; who they are."""
    window = kit.window(ranks=9)
    result = there_and_back(window)
    pairs = [
        (result.median_s, window.section_median_s),
        (result.step_s, window.section_step_s),
        (result.own_s, window.section_own_s),
        (result.individual, window.section_individual),
        (result.relative, window.section_relative),
        (result.slowdown, window.section_slowdown),
    ]
    for kept, whole in pairs:
        np.testing.assert_allclose(kept, whole, rtol=2e-5)
    assert result.count.tolist() == window.section_count.tolist()
    assert result.sections == window.sections
    assert result.ranks.tolist() == [s.rank for s in window.sources]
    assert result.nodes == [s.node for s in window.sources]
    assert result.roles == [s.role for s in window.sources]
    assert result.devices == [s.device for s in window.sources]
    assert (result.first_step, result.last_step, result.end_ns) == (0, 9, window.end_ns)
    assert np.isnan(result.gpu_relative).all()


def test_what_is_not_known_of_a_window_stays_unknown(kit: Any) -> None:
    """NaN is NaN, an infinite or huge time survives, stragglers are listed."""
    window = kit.window()
    table = window.section_median_s.copy()
    table[0, 0], table[1, 1], table[2, 2] = np.nan, np.inf, 1e300
    gpu = np.array([0.5, np.nan, 1.0, 1.0])
    result = there_and_back(
        dataclasses.replace(window, section_median_s=table, gpu_relative=gpu, first_step=None)
    )
    assert np.isnan(result.median_s[0, 0])
    assert np.isinf(result.median_s[1:3, 1:3].diagonal()).all()
    np.testing.assert_array_equal(result.gpu_relative, gpu.astype(np.float32))
    assert result.first_step is None


def test_times_per_step_are_stored_where_they_differ(kit: Any) -> None:
    """A section that runs several times in a step."""
    window = kit.window()
    twice = dataclasses.replace(window, section_step_s=window.section_median_s * 2)
    assert "step_s" not in window_value(window)
    np.testing.assert_allclose(there_and_back(twice).step_s, twice.section_step_s, rtol=2e-5)
    own = dataclasses.replace(window, section_own_s=window.section_step_s * 0.8)
    assert "own_s" not in window_value(window)
    np.testing.assert_allclose(there_and_back(own).own_s, own.section_own_s, rtol=2e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"median_s": None},
        {"median_s": np.ones((4, 3), np.int32)},
        {"median_s": np.ones((3, 3), np.float32)},
        {"count": np.ones((4, 3), np.float32)},
        {"ranks": [1, 2, 3, 4]},
        {"nodes": []},
        {"devices": ["a"]},
        {"sections": [{"name": "a", "kind": "compute"}]},
        {"sections": [{"name": name, "kind": "x"} for name in "abc"]},
        {"stragglers": [[1]]},
        {"gpu_relative": np.ones(3, np.float32)},
    ],
)
def test_what_is_no_window_is_an_error_with_its_place(kit: Any, change: dict[str, Any]) -> None:
    """A blob may be whole and still be of another version."""
    value = {**window_value(kit.window()), **change}
    with pytest.raises(InputError, match=r"history\.db: window 7"):
        read_window(value, where="history.db: window 7")
    with pytest.raises(InputError):
        read_window({}, where="x")


def test_a_verdict_is_read_again(kit: Any) -> None:
    """Every field; NaN stays NaN."""
    verdict = kit.verdict(3, slowdown=math.nan, own_s=0.25, since_step=None, pages=True)
    result = read_verdict(verdict_text(verdict), where="x")
    assert repr(result) == repr(verdict)
    assert json.loads(verdict_text(verdict))["slowdown"] is None
    assert {f.name for f in dataclasses.fields(Verdict)} == set(json.loads(verdict_text(verdict)))


def test_a_verdict_of_a_newer_version_is_read_as_far_as_it_is_known(kit: Any) -> None:
    """And one of an older version has the defaults."""
    values = json.loads(verdict_text(kit.verdict()))
    del values["pages"]
    result = read_verdict(json.dumps({**values, "mood": "bad"}), where="x")
    assert repr(result) == repr(kit.verdict())


@pytest.mark.parametrize(
    "change",
    [{"state": "weird"}, {"rank": "3"}, {"rank": 1.5}, {"slowdown": "x"}, {"cause": []},
     {"node": 5}, {"pages": 1}, {"run_id": None}, {"at_ns": None}, {"at_ns": True}],
)  # fmt: skip
def test_what_is_no_verdict_is_an_error_with_its_place(kit: Any, change: dict[str, Any]) -> None:
    """Wrong types, words that are not in the closed lists, no JSON."""
    values = json.loads(verdict_text(kit.verdict()))
    for text in (json.dumps({**values, **change}), "{", "[]", "{}", "[" * 100_000):
        with pytest.raises(InputError, match="change 7"):
            read_verdict(text, where="change 7")
