"""Summaries: the newest that was known of a run and group outlives the collector."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.history import MAX_SUMMARIES, WriteQueue
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.store import Summary
from otel_straggler.errors import InputError

DAY_S = 86_400.0
MiB = 2**20


def summary(run_id: str = "run", group: str = "", **value: Any) -> Summary:
    return Summary(run_id=run_id, job="job", group=group, make=lambda: dict(value))


def lost(history: Any) -> dict[str, int]:
    return {reason: n for reason, n in history.counts().failures.items() if n}


def values(path: Path, run_id: str = "run") -> dict[str, Any]:
    with HistoryReader(path) as reader:
        return {group: reader.summary(run_id, group) for group in reader.summaries(run_id)}


@pytest.mark.parametrize("path", ["sqlite", "postgres"], indirect=True)
def test_the_newest_summary_of_every_group_is_kept(begin: Any, path: Path) -> None:
    """A newer one takes the place of the older; a run is known by its summary alone."""
    history = begin()
    history.put(summaries=[summary(step=1), summary(group="critic", step=2)])
    history.flush()
    history.put(summaries=[summary(step=3, cells=[[0, 1, 1.5], [0, 2, None]])])
    history.close()
    assert values(path) == {"": {"step": 3, "cells": [[0, 1, 1.5], [0, 2, None]]},
                            "critic": {"step": 2}}  # fmt: skip
    with HistoryReader(path) as reader:
        assert [(run.run_id, run.job) for run in reader.runs()] == [("run", "job")]
        assert reader.summary("run", "no such group") is None
        assert reader.summaries("no such run") == {}


def test_a_summary_is_made_by_the_thread_that_writes_and_only_if_it_is_written(
    begin: Any, path: Path
) -> None:
    """Who hands it over does not wait, and what is replaced before it is written costs nothing."""
    made: list[str] = []
    held, release = threading.Event(), threading.Event()

    def slow() -> dict[str, Any]:
        held.set()
        assert release.wait(60)
        made.append(threading.current_thread().name)
        return {}

    history = begin()
    history.put(summaries=[Summary(run_id="slow", job="", group="", make=slow)])
    assert held.wait(60)
    for step in range(5):
        history.put(summaries=[Summary(run_id="run", job="", group="", make=lambda n=step: (
            made.append(f"run {n}") or {"step": n}))])  # fmt: skip
    release.set()
    history.close()
    assert made == ["straggler-history", "run 4"]
    assert values(path) == {"": {"step": 4}}


def test_a_summary_that_cannot_be_made_does_not_keep_the_others_from_being_written(
    begin: Any, path: Path
) -> None:
    """It is counted as a mistake."""

    def fails() -> dict[str, Any]:
        raise KeyError("rank")

    history = begin()
    history.put(summaries=[Summary(run_id="bad", job="", group="", make=fails), summary(step=1)])
    history.close()
    assert lost(history) == {"error": 1}
    assert values(path) == {"": {"step": 1}}


def test_summaries_grow_old_as_everything_does(begin: Any, clock: Any, path: Path) -> None:
    """And their run goes with them."""
    history = begin(keep_s=7 * DAY_S)
    history.put(summaries=[summary("old", step=1)])
    history.flush()
    clock.now_s += 5 * DAY_S
    history.put(summaries=[summary("new", step=2)])
    history.flush()
    clock.now_s += 3 * DAY_S
    history.put(states={"a": 1})
    history.close()
    assert (values(path, "old"), values(path, "new")) == ({}, {"": {"step": 2}})
    with HistoryReader(path) as reader:
        assert [run.run_id for run in reader.runs()] == ["new"]


def test_summaries_stay_within_the_size_of_the_file(begin: Any, clock: Any, path: Path) -> None:
    """One may take an eighth of it; together they go before states do, the oldest first."""
    random = np.random.default_rng(0)
    history = begin(max_bytes=MiB)
    history.put(states={"kept": 1}, summaries=[summary("large", table=random.random(20_000))])
    history.flush()
    assert lost(history) == {"too_large": 1}
    for number in range(14):
        clock.now_s += 1
        history.put(summaries=[summary(f"run-{number}", table=random.random(14_000))])
        history.flush()
    assert path.stat().st_size <= 1.1 * MiB
    history.close()
    kept = [number for number in range(14) if values(path, f"run-{number}")]
    assert kept == list(range(14 - len(kept), 14))
    assert 5 <= len(kept) <= 12
    assert lost(history)["too_large"] == 1 + 14 - len(kept)
    assert begin().restored == {"kept": 1}


def test_waiting_summaries_are_bounded() -> None:
    """A newer one of a run that waits already always has room."""
    waiting = WriteQueue(MiB)
    many = [summary(f"run-{number}") for number in range(MAX_SUMMARIES + 5)]
    assert waiting.put([], [], {}, many) == 5
    assert waiting.put([], [], {}, many[:3]) == 0
    batch = waiting.drain(0.0)
    assert batch is not None
    assert len(batch) == MAX_SUMMARIES


def test_a_damaged_summary_is_dropped_and_counted(begin: Any, path: Path) -> None:
    """At the next start; a reader that comes before says what is wrong. Others stay."""
    history = begin()
    history.put(summaries=[summary("run", step=1), summary("other", step=2)])
    history.close()
    connection = sqlite3.connect(path)
    (blob,) = connection.execute("SELECT blob FROM summaries WHERE run_id = 'run'").fetchone()
    broken = blob[:-3] + bytes([blob[-3] ^ 1]) + blob[-2:]
    connection.execute("UPDATE summaries SET blob = ? WHERE run_id = 'run'", (broken,))
    connection.commit()
    connection.close()
    with HistoryReader(path) as reader, pytest.raises(InputError, match="summary run"):
        reader.summary("run", "")
    history = begin()
    assert lost(history) == {"damaged": 1}
    assert (values(path, "run"), values(path, "other")) == ({}, {"": {"step": 2}})
