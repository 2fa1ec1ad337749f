"""What is normal by a subject's own past, and tables that grow, forget and survive."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.history import KeyedTables, OwnHistory, how_it_began

HOUR_NS = 3_600_000_000_000
values = st.one_of(st.floats(-5.0, 5.0), st.just(math.nan), st.just(math.inf))


def taught(history: OwnHistory, key: str, log_s: Sequence[float], at_ns: int = 0) -> OwnHistory:
    for value in log_s:
        history.update([key], ["f"], np.array([[value]]), None, at_ns)
    return history


def normal(history: OwnHistory, key: str, at_ns: int = 0) -> float:
    return float(history.reference([key], ["f"], at_ns).item())


@given(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=20))
def test_at_one_time_the_reference_is_the_plain_mean(log_s: list[float]) -> None:
    """Nothing fades before time goes by."""
    assert normal(taught(OwnHistory(), "gpu", log_s), "gpu") == pytest.approx(
        np.mean(log_s), abs=1e-9
    )


@given(st.lists(values, max_size=20))
def test_values_that_are_not_known_change_nothing(log_s: list[float]) -> None:
    """NaN and infinity are left out."""
    known = [value for value in log_s if math.isfinite(value)]
    every, only = (normal(taught(OwnHistory(), "gpu", v), "gpu") for v in (log_s, known))
    assert every == pytest.approx(only, nan_ok=True)


@given(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=9), st.floats(-3.0, 3.0))
def test_a_factor_on_all_times_moves_the_reference_by_its_log(
    log_s: list[float], log_factor: float
) -> None:
    """So nothing depends on the unit of time."""
    scaled = taught(OwnHistory(), "gpu", [value + log_factor for value in log_s])
    here = normal(taught(OwnHistory(), "gpu", log_s), "gpu")
    assert normal(scaled, "gpu") == pytest.approx(here + log_factor, abs=1e-9)


def test_what_is_old_counts_half_after_a_day() -> None:
    """Eight values of 0 a day ago weigh as four; then four of 1."""
    history = taught(OwnHistory(), "gpu", [0.0] * 8)
    assert normal(taught(history, "gpu", [1.0] * 4, 24 * HOUR_NS), "gpu", 24 * HOUR_NS) == 0.5


def test_two_evaluations_are_no_reference_yet_and_old_ones_no_more() -> None:
    """NaN: nothing is compared with a guess."""
    assert math.isnan(normal(taught(OwnHistory(), "gpu", [0.0, 0.0]), "gpu"))
    history = taught(OwnHistory(), "gpu", [0.0] * 5)
    assert normal(history, "gpu", 12 * HOUR_NS) == 0.0
    assert math.isnan(normal(history, "gpu", 48 * HOUR_NS))
    assert math.isnan(normal(history, "gpu", 10**9 * HOUR_NS))


def test_a_clock_that_runs_backwards_fades_nothing() -> None:
    """An evaluation that ended earlier than the last."""
    history = taught(OwnHistory(), "gpu", [0.0] * 3, 100 * HOUR_NS)
    assert normal(taught(history, "gpu", [1.0], HOUR_NS), "gpu", HOUR_NS) == 0.25


def test_a_subject_that_is_slow_does_not_become_its_own_normal() -> None:
    """What is not eligible is not learnt."""
    history = taught(OwnHistory(), "gpu", [0.0] * 5)
    for _ in range(100):
        history.update(["gpu"], ["f"], np.array([[1.0]]), np.array([[False]]), 0)
    assert normal(history, "gpu") == 0.0


def test_other_subjects_change_nothing() -> None:
    """Each has a history of its own; new ones do not move what is known."""
    history = taught(OwnHistory(), "gpu-0", [0.25] * 4)
    for i in range(1, 300):
        taught(history, f"gpu-{i}", [float(i)] * 4)
    assert (normal(history, "gpu-0"), normal(history, "gpu-250")) == (0.25, 250.0)


def test_histories_survive_a_restart() -> None:
    """state() and restore(): what was learnt goes on, by key, in whatever order ranks come."""
    history = taught(taught(OwnHistory(), "gpu-0", [0.1] * 4), "gpu-1", [0.2] * 4)
    later = OwnHistory()
    later.restore(history.state())
    assert later.reference(["gpu-1", "gpu-0", "new"], ["f"], 0)[:, 0].tolist() == [
        pytest.approx(0.2), pytest.approx(0.1), pytest.approx(math.nan, nan_ok=True),
    ]  # fmt: skip
    assert normal(taught(later, "gpu-0", [0.6]), "gpu-0") == pytest.approx(0.2)


def test_the_longest_unseen_subject_is_forgotten_first() -> None:
    """State is bounded: of 8 subjects allowed, those seen last stay."""
    history = taught(OwnHistory(max_subjects=8), "always-there", [0.5] * 3)
    for i in range(20):
        taught(history, f"gpu-{i}", [float(i)] * 3)
        assert normal(history, "always-there") == 0.5
    assert len(history.state()["keys"]) <= 8
    assert normal(history, "gpu-19") == 19.0
    assert math.isnan(normal(history, "gpu-0"))


def test_a_subject_that_is_asked_for_is_not_forgotten_for_a_new_one() -> None:
    """Though it is the longest unseen."""
    history = OwnHistory(max_subjects=4)
    for i in range(4):
        taught(history, f"gpu-{i}", [float(i)] * 3)
    assert history.reference(["gpu-0", "new"], ["f"], 0)[0].item() == 0.0


def test_a_world_larger_than_the_limit_is_kept_whole() -> None:
    """What is asked for at once is never forgotten at once."""
    history = OwnHistory(max_subjects=4)
    keys = [f"gpu-{i}" for i in range(10)]
    for _ in range(3):
        history.update(keys, ["f"], np.arange(10.0)[:, None], None, 0)
    assert history.reference(keys, ["f"], 0)[:, 0].tolist() == list(range(10))


def test_born_slow_and_became_slow() -> None:
    """By what was normal before."""
    floor = math.log(1.05)
    assert how_it_began(math.log(1.10), floor) == "born"
    assert how_it_began(math.log(1.01), floor) == "became"
    assert how_it_began(math.nan, floor) == "unknown"


def test_names_are_bounded_too() -> None:
    """Sections with a number in their name do not fill the memory."""
    tables = KeyedTables(("t",), max_keys=4, max_names=10)
    for i in range(100):
        index = tables.index(["k"], [f"section-{i}", "forward"])
        tables.put("t", index, tables.get("t", index) + 1.0)
    assert len(tables.state()["names"]) <= 10
    assert tables.get("t", tables.index(["k"], ["forward"])).item() == 100.0
