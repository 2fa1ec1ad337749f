"""Which kernel histograms belong to a window."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.detect.scores import scorer as scorer_module
from otel_straggler.detect.scores.kernel_store import KernelHistograms, by_interval
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.kernels import KernelTimes, times_of_counts
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source

from ..kernels_made import tally

S = 10**9
RANKS = tuple(Source(run_id="r", rank=n, session_id=f"s{n}") for n in range(3))


def reported(rank: int, start_s: float, end_s: float, *names: str, **who: Any) -> KernelTimes:
    """What a rank counted: each kernel as often as its interval is long."""
    kernels = tally(*((name, "forward", [1_000] * int(end_s)) for name in names or ("gemm",)))
    source = replace(RANKS[rank], **who)
    return times_of_counts(kernels.take(), source, int(start_s * S), int(end_s * S))


def store(*parts: KernelTimes, max_kernels: int = 10_000) -> KernelHistograms:
    made = KernelHistograms(max_kernels, Counter())
    for part in parts:
        take(made, part)
    return made


def take(held: KernelHistograms, part: KernelTimes) -> None:
    for source, points in by_interval(part):
        held.add(source, points)


def window(
    of: KernelHistograms, first_s: float, last_s: float, n_steps: int = 0
) -> list[tuple[int, int]]:
    """(rank, end in s) of the intervals that belong to it."""
    n = len(RANKS)
    result = of.intervals_of_window(
        RANKS, np.full(n, int(first_s * S)), np.full(n, int(last_s * S)), n_steps
    )
    return [(line, each.end_ns // S) for line, each in result for _ in range(len(each.times))]


def scorer(max_bytes: int) -> Scorer:
    return Scorer(ScoreSettings(kernel_bytes=max_bytes))


def held_of(scorer: Scorer) -> list[KernelHistograms]:
    return [held for world in scorer._worlds() for held in world.kernels.values()]


def test_a_window_has_the_intervals_that_it_overlaps() -> None:
    """Of every rank; the next window has its own."""
    parts = [reported(n, at, at + 10) for at in (0, 10, 20, 30, 40) for n in range(3)]
    held = store(*parts)
    assert window(held, 12, 28) == [(n, end) for n in range(3) for end in (20, 30)]
    assert window(held, 28, 35) == [(n, end) for n in range(3) for end in (30, 40)]


def test_a_window_that_closes_before_its_interval_is_told_has_the_newest() -> None:
    """Up to a minute; then there is no GPU score rather than one of long ago."""
    held = store(*(reported(n, at, at + 10) for at in (0, 10) for n in range(3)))
    assert window(held, 25, 29) == [(0, 20), (1, 20), (2, 20)]
    assert window(held, 80, 84) == [(0, 20), (1, 20), (2, 20)]
    assert window(held, 81, 85) == []


def test_a_sampled_step_stands_in_until_another_must_have_come() -> None:
    """Kernels timed in one step of 200, 2 s each, are reported once in 400 s: windows of 20 steps
    between keep them, however often they are asked for; after 250 steps there are none."""
    held = store(*(reported(n, at, at + 10) for at in (0, 400) for n in range(3)))
    for first_s in range(420, 900, 40):
        assert window(held, first_s, first_s + 40, 20) == [(0, 410), (1, 410), (2, 410)]
    assert window(held, 911, 951, 20) == []
    assert window(held, 470, 480) == [(0, 410), (1, 410), (2, 410)]
    assert window(held, 471, 481) == []  # of rows without steps


def test_a_sample_that_some_ranks_have_reported_waits_for_the_others() -> None:
    """They are compared over the same steps, also if a sample comes once in many intervals."""
    parts = [reported(n, at, at + 10) for at in (0, 100, 200) for n in range(3)]
    late = [reported(n, 300, 310) for n in range(2)]
    assert window(store(*parts, *late), 290, 320, 20) == [(n, 210) for n in range(3)]
    held = store(*parts, *late, reported(2, 300, 310))
    assert window(held, 290, 320, 20) == [(n, 310) for n in range(3)]


def test_scores_have_the_age_of_their_kernels_and_meet_no_best_again() -> None:
    """What stands in is not as new as its window."""
    made = Scorer(ScoreSettings(window_steps=5, grace_s=0.1))
    for n in range(3):
        made.observe_kernels(reported(n, 0, 10))
    ages = []
    for first in (0, 5, 40):
        builder = BatchBuilder()
        for step in range(first, first + 5):
            for source in RANKS:
                builder.add(
                    replace(source, world_size=3),
                    Section("forward"),
                    step=step,
                    start_ns=10 * S + 2 * step * S,
                    duration_s=1.5,
                )
        made.observe(builder.build(), 0)
    for scores in made.close_all():
        assert np.isfinite(scores.gpu_relative).all()
        ages.append(scores.gpu_age_s)
    assert ages == pytest.approx([9.5, 19.5, 89.5])
    met = made._shared.references.kernels.state()["met_at_ns"]
    assert (met[met > 0] == 10 * S).all()


def test_windows_that_share_their_intervals_share_the_work() -> None:
    """A run of fast steps closes many windows in ten seconds."""
    held = store(*(reported(n, 0, 10) for n in range(3)))
    at = [np.full(3, s * S) for s in (12, 14, 16, 18)]
    first, second = held.of_window(RANKS, *at[:2]), held.of_window(RANKS, *at[2:])
    assert first is second is not None
    for n in range(3):
        take(held, reported(n, 10, 20))
    assert held.of_window(RANKS, *at[2:]) is not first


def test_ranks_are_compared_over_the_same_time() -> None:
    """What two ranks have told of and the third not yet waits for the next window."""
    early = [reported(n, 0, 10) for n in range(3)]
    late = [reported(n, 10, 20) for n in range(2)]
    assert window(store(*early, *late), 4, 18) == [(0, 10), (1, 10), (2, 10)]
    held = store(*early, *late, reported(2, 10, 20))
    assert window(held, 12, 18) == [(0, 20), (1, 20), (2, 20)]


def test_a_rank_that_fell_silent_does_not_hold_the_others_up() -> None:
    """It has the scores of its last interval, for a minute."""
    parts = [reported(n, at, at + 10) for at in (0, 10, 20) for n in range(3) if n != 2 or at == 0]
    assert window(store(*parts), 22, 28) == [(0, 30), (1, 30), (2, 10)]


def test_what_is_delivered_twice_counts_once() -> None:
    """A request that is sent again after its answer was lost; in parts as well."""
    whole = reported(0, 0, 10, "a", "b")
    held = store(whole, whole, whole.take(np.array([1])), reported(0, 10, 20, "a"))
    assert held._counts == Counter({"kept": 3, "repeated": 3})
    assert window(held, 0, 30) == [(0, 10), (0, 10), (0, 20)]


def test_a_request_may_tell_of_several_ranks_and_intervals() -> None:
    """As a proxy puts them together."""
    one, other = reported(0, 0, 10), reported(1, 2, 12)
    joined = replace(
        one,
        sources=(*one.sources, *other.sources),
        source=np.array([0, 1], np.int32),
        **{
            name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in ("cell", "start_ns", "end_ns", "count", "sum_s", "min_s", "max_s", "scale")
        },
        ends=np.concatenate([one.ends, other.ends + len(one.index)]),
        index=np.concatenate([one.index, other.index]),
        runs=np.concatenate([one.runs, other.runs]),
    )
    assert window(store(joined), 0, 30) == [(0, 10), (1, 12)]


def test_a_new_process_of_a_rank_has_nothing_of_the_one_before() -> None:
    """A restart is not scored with the kernels of the past."""
    held = store(reported(0, 0, 10, session_id="before"), reported(1, 0, 10))
    assert window(held, 0, 10) == [(1, 10)]


def test_names_beyond_the_most_are_left_out_and_counted() -> None:
    """Ten thousand kernels of a run; those that are known go on being taken."""
    names = [f"kernel_{n}" for n in range(10_050)]
    held = store(reported(0, 0, 1, *names), reported(0, 1, 2, *names))
    assert held._counts == Counter({"kept": 20_000, "over_limit": 100})


def test_memory_is_bounded() -> None:
    """The oldest intervals go first."""
    of = scorer(10 * reported(0, 0, 10).nbytes + 1_000)
    for at in range(0, 1_000, 10):
        of.observe_kernels(reported(0, at, at + 10))
    (held,) = held_of(of)
    kept = window(held, 0, 1_000)
    assert 4 <= len(kept) <= 10
    assert kept[-1] == (0, 1_000)
    assert of.counts.kernel_times["over_limit"] + of.counts.kernel_times["kept"] == 100


def test_runs_that_only_name_kernels_are_bounded_too() -> None:
    """Names take memory: of a hundred runs that name many, the largest give up theirs."""
    of = scorer(2_000_000)
    for number in range(100):
        names = [f"kernel_{number}_{n}" for n in range(200)]
        of.observe_kernels(reported(0, 0, 1, *names, run_id=f"run {number}"))
        assert sum(held.nbytes for held in held_of(of)) <= 2_000_000
    assert 5 <= sum(held.nbytes > 0 for held in held_of(of)) < 50
    assert of.runs() == ()
    of.close_due(0)
    of.close_due(3_600 * S)
    assert held_of(of) == []


def test_what_is_too_old_for_any_window_is_forgotten() -> None:
    """A run of weeks does not grow."""
    held = store()
    for at in range(0, 10_000, 10):
        take(held, reported(0, at, at + 10))
        assert window(held, at, at + 10) == [(0, at + 10)]
    assert sum(map(len, held._intervals.values())) < 15


def test_attempts_groups_and_runs_are_kept_apart() -> None:
    """And evicted apart."""
    of = scorer(2**30)
    for each in ({}, {"attempt": 1}, {"group": "actor"}, {"run_id": "other"}):
        of.observe_kernels(reported(0, 0, 10, **each))
    assert len(held_of(of)) == 4
    of.evict("other")
    of.evict("r", "actor")
    assert len(held_of(of)) == 2
    of.evict("r")
    assert held_of(of) == []


# --- over restarts of the collector --------------------------------------------------------------


def restarted(held: KernelHistograms, max_kernels: int = 10_000) -> KernelHistograms:
    """Through the bytes of a history."""
    result = KernelHistograms(max_kernels, Counter())
    result.restore(decode_blob(encode_blob(held.state()), where="test"))
    return result


def test_windows_have_the_same_kernels_after_a_restart() -> None:
    """The same medians, the same memory; what is delivered again is not counted again."""
    parts = [reported(n, at, at + 10, "gemm", f"own{n}") for at in (0, 10, 20) for n in range(3)]
    held = store(*parts)
    again = restarted(restarted(held))
    for part in parts:
        take(again, part)
    assert again._counts["repeated"] == sum(len(part) for part in parts)
    assert again.nbytes == held.nbytes
    first, last = np.full(3, 12 * S), np.full(3, 18 * S)
    chosen, chosen_again = (each.intervals_of_window(RANKS, first, last) for each in (held, again))
    assert len(chosen) == 3
    for (line, one), (line_again, other) in zip(chosen, chosen_again, strict=True):
        assert (line_again, other.start_ns, other.end_ns) == (line, one.start_ns, one.end_ns)
        for name, column in one.times.columns().items():
            if name != "source":  # of the request; a window has its own
                np.testing.assert_array_equal(other.times.columns()[name], column, err_msg=name)
    assert list(again._codes) == list(held._codes)


def test_histograms_without_a_place_for_their_kernels_are_left_out_after_a_restart() -> None:
    """The collector starts with a smaller limit; what comes from then on is kept."""
    again = restarted(store(reported(0, 0, 10, "a", "b")), max_kernels=1)
    assert window(again, 0, 20) == []
    take(again, reported(0, 0, 10, "a"))
    assert window(again, 0, 20) == [(0, 10)]


def test_kernels_of_open_windows_survive_a_restart_and_those_of_the_largest_run_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is saved is bounded over all runs; rows are saved in any case."""
    before, names = scorer(1 << 20), ("small", "large")
    for run_id in names:
        for n in range(3):
            who = replace(RANKS[n], run_id=run_id)
            row = BatchBuilder()
            row.add(who, Section("forward"), step=0, seq=0, start_ns=15 * S, duration_s=1.0)
            before.observe(row.build(), 0)
            kernels = ("gemm",) if run_id == "small" else tuple(map(str, range(50)))
            before.observe_kernels(reported(n, 10, 20, *kernels, run_id=run_id))
    sizes = {
        run_id: sum(w.kernel_nbytes for w in before._runs[run_id].values()) for run_id in names
    }
    monkeypatch.setattr(scorer_module, "MAX_SAVED_KERNEL_BYTES", sum(sizes.values()) - 1)
    after = Scorer()
    after.restore_open(before.open_state(), 0)
    assert {run_id: bool(after._runs[run_id][""].kernels) for run_id in names} == {
        "small": True,
        "large": False,
    }
    assert {w.run_id: w.section_count.sum() for w in after.close_all()} == {"small": 3, "large": 3}
