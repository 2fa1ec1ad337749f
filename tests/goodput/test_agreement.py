"""Agreement with ml-goodput-measurement 0.2.3, where definitions are the same.

Its rules are derived again in :func:`by_their_rules`; where the library can be imported, it is
asked, too. What differs on purpose, and so is not generated here:

- a restart from step 0, or from a step below the first of the attempt before: the library does not
  see the steps as done again;
- a restart at the step after the last one: the library takes the whole interruption for a step;
- custom events in steps that were done again: the library counts them as wasted;
- data that is loaded later than before the first step of an attempt, first in a later attempt, or
  in a third one: the library counts some of it twice or as asynchronous. Here all waiting for data
  is badput;
- the last step of a run: the library leaves it out of the mean that the first step is compared to.
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.goodput.account import account
from otel_straggler.goodput.activities import ATTEMPT, NO_END, STEP, Activities, Activity

AT_S = 1_700_000_000
S = 10**9
Entry = tuple[str, int, Any]
"""What, at which second, and a step number or the type of a custom event."""

PAIRS = {"init": "initialization", "prep": "preparation", "data": "data", "custom": "custom:X"}


@st.composite
def runs(draw: st.DrawFn) -> list[Entry]:
    """A run of up to four attempts; seconds are whole numbers."""
    entries: list[Entry] = []
    now, first = 0, 1
    n_attempts = draw(st.integers(1, 4))
    few = st.integers(0, 20)
    for attempt in range(n_attempts):
        is_last = attempt == n_attempts - 1
        entries.append(("job_start", now, None))
        for what in ("init", "prep", *(["data"] if attempt < 2 else [])):
            now += draw(few)
            length = draw(few) + (what == "data")
            if length:
                entries += [(f"{what}_start", now, None), (f"{what}_end", now + length, None)]
            now += length
        now += draw(few)
        n_steps, usual = draw(st.integers(2 + is_last, 8)), draw(st.integers(1, 20))
        for k in range(n_steps):
            entries.append(("step", now, first + k))
            length = usual + (draw(few) if k == 0 or not is_last else 0)
            if is_last and 0 < k < n_steps - 1 and draw(st.booleans()):
                # A custom event makes its step longer, so that all steps are alike without it.
                extra = draw(st.integers(1, 9))
                entries += [("custom_start", now, "X"), ("custom_end", now + extra, "X")]
                length += extra
            if is_last or k < n_steps - 1:
                now += length
        if is_last:
            entries.append(("job_end", now, None))
        else:
            now += draw(st.integers(1, 50))
            first = draw(st.integers(first, first + n_steps - 1))
    return entries


def by_their_rules(entries: list[Entry]) -> dict[str, float]:
    """Seconds by category, from the definitions of the library."""
    total: dict[str, float] = dict.fromkeys(
        ("productive", "wasted", "recovery", "startup", *PAIRS.values()), 0.0
    )
    opened: dict[str, int] = {}
    custom: list[tuple[int, int]] = []
    for what, at, _ in entries:
        kind, _, edge = what.partition("_")
        if kind in PAIRS and edge == "start":
            opened[kind] = at
        elif kind in PAIRS and edge == "end":
            total[PAIRS[kind]] += at - opened[kind]
            custom += [(opened[kind], at)] if kind == "custom" else []
    starts = [at for what, at, _ in entries if what == "job_start"]
    segments: list[list[tuple[int, int]]] = []
    for what, at, step in entries:
        if what == "job_start":
            segments.append([])
        elif what == "step":
            segments[-1].append((step, at))
    end = entries[-1][1]
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        again = math.inf if is_last else segments[number + 1][0][0]
        lengths = []
        for (step, at), (_, next_at) in pairwise(segment):
            if step >= again:
                total["wasted"] += next_at - at
                continue
            inside = sum(b - a for a, b in custom if at <= a and b <= next_at)
            lengths.append(next_at - at - inside)
        if len(lengths) > 1:
            startup = max(0.0, lengths[0] - sum(lengths[1:]) / (len(lengths) - 1))
            total["startup"] += startup
            total["productive"] -= startup
        total["productive"] += sum(lengths)
        if is_last:
            total["productive"] += end - segment[-1][1]
        else:
            total["recovery"] += starts[number + 1] - segment[-1][1]
    total["other"] = end - starts[0] - sum(total.values())
    return total


def by_ours(entries: list[Entry]) -> dict[str, float]:
    rows: list[Activity] = []
    attempt = -1
    opened: dict[str, int] = {}
    for what, at, step in entries:
        at_ns = (AT_S + at) * S
        kind, _, edge = what.partition("_")
        if what == "job_start":
            attempt += 1
            rows.append(Activity(ATTEMPT, at_ns, NO_END, 0, attempt))
        elif what == "job_end":
            rows.append(Activity(ATTEMPT, at_ns, at_ns, 0, attempt))
        elif what == "step":
            rows.append(Activity(STEP, at_ns, NO_END, 0, attempt, step))
        elif edge == "start":
            opened[kind] = at_ns
        else:
            rows.append(Activity(PAIRS[kind], opened[kind], at_ns, 0, attempt))
    result = account(Activities.of(rows))
    assert result is not None
    ours = dict(zip(result.categories, (result.run_ns / S).tolist(), strict=True))
    return {
        "productive": ours["productive"],
        "wasted": ours["redone"],
        "recovery": ours["hang"] + ours["restart"],
        "start-up and other": sum(
            ours[name] for name in ("start_up", "reinitialization", "other", "shutdown")
        ),
        **{name: ours.get(name, 0.0) for name in PAIRS.values()},
    }


def comparable(theirs: dict[str, float]) -> dict[str, float]:
    """Start-up is a category here from the first process on; theirs is of the first step only."""
    both = theirs["startup"] + theirs["other"]
    kept = {name: each for name, each in theirs.items() if name not in {"startup", "other"}}
    return {**kept, "start-up and other": both}


@given(runs())
def test_random_runs_have_the_goodput_of_their_rules(entries: list[Entry]) -> None:
    expected = comparable(by_their_rules(entries))
    assert by_ours(entries) == pytest.approx(expected, abs=1e-6)


def test_the_rules_give_what_the_library_gave_for_a_known_run() -> None:
    """Steps 0 to 3, a restart, 2 to 5: 52.174 %, 10 s wasted, 20 s of recovery, 25 s other."""
    steps = [("step", 10 * k + 10, k) for k in range(4)]
    again = [("step", at, 2 + k) for k, at in enumerate((75, 85, 95, 105))]
    run = [("job_start", 0, None), *steps, ("job_start", 60, None), *again, ("job_end", 115, None)]
    theirs = by_their_rules(run)
    assert 100 * theirs["productive"] / 115 == pytest.approx(52.174, abs=1e-3)
    assert (theirs["wasted"], theirs["recovery"], theirs["other"]) == (10.0, 20.0, 25.0)
    assert by_ours(run) == pytest.approx(comparable(theirs))


@given(runs())
def test_random_runs_have_the_goodput_that_the_library_gives(entries: list[Entry]) -> None:
    ask = library()
    if ask is None:
        pytest.skip(
            "ml-goodput-measurement is not installed (pip install ml-goodput-measurement): "
            "only its rules are compared"
        )
    assert by_ours(entries) == pytest.approx(comparable(ask(entries)), abs=1e-4)


def library() -> Callable[[list[Entry]], dict[str, float]] | None:
    try:
        goodput = importlib.import_module("ml_goodput_measurement.src.goodput")
    except ImportError:
        return None
    return lambda entries: _asked(goodput, entries)


class _Log:
    """What the library takes for a log in the cloud."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def write_cloud_logging_entry(self, entry: Any) -> None:
        self.entries.append(entry)

    def flush(self) -> None:
        pass

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> Any:
        newest = datetime.now(timezone.utc)
        return self.entries, (newest, newest)


def _asked(goodput: Any, entries: list[Entry]) -> dict[str, float]:
    log = _Log()
    recorder = goodput.GoodputRecorder("j", "l", True, cloud_logger=log)
    names = {"job": "job", "init": "tpu_init", "prep": "training_preparation"}
    names |= {"data": "data_loading", "custom": "custom_badput_event"}
    for what, at, value in entries:
        moment = datetime.fromtimestamp(AT_S + at, timezone.utc)
        kind, _, edge = what.partition("_")
        if what == "step":
            recorder.record_step_start_time(value, moment)
        elif kind == "custom":
            getattr(recorder, f"record_custom_badput_event_{edge}_time")(moment, value)
        else:
            getattr(recorder, f"record_{names[kind]}_{edge}_time")(moment)
    with tempfile.TemporaryDirectory() as folder:  # it reads what an earlier run has left there
        calculator = goodput.GoodputCalculator("j", "l", log, cache_dir=folder)
        ratio, badput, _ = calculator.get_job_goodput(include_badput_breakdown=True)
    types = goodput.BadputType
    whole = (entries[-1][1] - entries[0][1]) / 100
    return {
        "productive": ratio * whole,
        "wasted": badput[types.WASTED_PROGRESS_FROM_DISRUPTION] * whole,
        "recovery": badput[types.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION] * whole,
        "startup": badput[types.PROGRAM_STARTUP] * whole,
        "other": badput[types.OTHER] * whole,
        "initialization": badput[types.TPU_INITIALIZATION] * whole,
        "preparation": badput[types.TRAINING_PREP] * whole,
        "data": badput[types.DATA_LOADING_SYNC] * whole,
        "custom:X": sum(badput[types.CUSTOM_BADPUT_EVENTS].values()) * whole,
    }
