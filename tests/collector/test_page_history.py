"""Windows of runs that are over, as the live page gets them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history import pages
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.reader import RunEntry
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.errors import StragglerError


def summary_of(seen: WorldView) -> Summary:
    return Summary(
        run_id=seen.run_id, job=seen.job, group=seen.group, make=lambda: summary_value(seen)
    )


def column(seq: int) -> Column:
    return Column(
        seq=seq,
        at_s=float(seq),
        first_step=None,
        last_step=None,
        n_steps=10,
        attempt=0,
        ranks=np.arange(2, dtype=np.int32),
        values=np.full((1, 2), 128, np.uint8),
        sections=(),
    )


def test_windows_of_other_runs_leave_no_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs share the numbers of a history; a page draws a line where a number is missing."""
    history = PageHistory(str(tmp_path / "history.db"))
    entry = RunEntry.__new__(RunEntry)
    monkeypatch.setattr(history, "run", lambda _: entry)
    monkeypatch.setattr(history, "state", lambda _: (1, 1, 1, 0))
    monkeypatch.setattr(history, "newest", lambda *_: [column(3), column(7), column(8)])
    kept = history.kept("run", "", 10)
    assert [each.seq for each in kept] == [0, 1, 2]
    assert [each.at_s for each in kept] == [3.0, 7.0, 8.0]


def test_a_file_that_cannot_be_read_is_asked_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it makes one page wait, and not every one; what is wrong is known meanwhile, until
    it can be read again."""
    path = tmp_path / "history.db"
    kept = History(path)
    kept.open()
    kept.close()
    opened: list[object] = []
    reader = pages.HistoryReader
    monkeypatch.setattr(
        pages,
        "HistoryReader",
        lambda *args, **more: opened.append(args) or reader(*args, **more),
    )
    now_s = [100.0]
    history = PageHistory(str(path), lambda: now_s[0])
    assert history.runs() == ()
    path.rename(tmp_path / "away.db")
    now_s[0] += 10.0
    for ask in (history.runs, history.runs, lambda: history.columns("run", "", 0.0, 1.0)):
        with pytest.raises(StragglerError, match="no file"):
            ask()
    assert len(opened) == 2
    assert "no file" in str(history.problem)
    (tmp_path / "away.db").rename(path)
    now_s[0] += 10.0
    assert history.runs() == ()
    assert history.problem is None


NOW_S = 1_790_000_000.0


def restarted(path: Path, *worlds: WorldView) -> tuple[PageHistory, list[float]]:
    """A collector that begins ten seconds after these were saved, and its clock."""
    history = History(path, wall_s=lambda: NOW_S)
    history.open()
    history.put(summaries=[summary_of(seen) for seen in worlds])
    history.close()
    clock = [NOW_S + 10.0]
    result = PageHistory(str(path), monotonic_s=lambda: clock[0], wall_s=lambda: clock[0])
    return result, clock


def test_a_picture_of_before_a_restart_says_so_until_it_is_known_how_the_run_is(
    tmp_path: Path,
) -> None:
    """It is neither live nor over; once a rank that lives would have been heard, it is lost."""
    seen = WorldView(run_id="run", now_s=NOW_S, began_at_s=NOW_S - 600.0, received_at_s=NOW_S - 1.0)
    history, clock = restarted(tmp_path / "history.db", seen)

    def look() -> tuple[Any, Any]:
        (world,) = history.worlds("run")
        result = page_json(world, ResponseMeta(version="1"), now_s=clock[0])
        (entry,) = history.entries(())
        assert entry["headline"] == result["answer"]["headline"]
        assert result["run"]["is_live"] is False
        return result, history.known_state("run")

    waits, state = look()
    assert (waits["run"]["seen_at_s"], waits["run"]["awaited_since_s"]) == (NOW_S, NOW_S + 10.0)
    assert (waits["run"]["state"], waits["answer"]["kind"]) == ("unknown", "waiting")
    assert waits["answer"]["headline"] == "Waiting for the run: the collector was restarted"
    clock[0] += 25.0
    lost, later = look()
    assert (lost["run"]["state"], lost["answer"]["tone"]) == ("lost", "watch")
    assert lost["answer"]["headline"] == "No data since the collector was restarted"
    assert later != state  # so that pages that are open look again
    clock[0] += 7_200.0
    over, _ = look()
    assert over["run"]["awaited_since_s"] is None
    assert over["answer"]["headline"] == "No rank is reporting anymore"


def test_what_had_ended_or_was_long_silent_is_not_awaited(tmp_path: Path) -> None:
    ended = WorldView(run_id="ended", now_s=NOW_S, finished_at_s=NOW_S - 5.0, outcome="ok")
    old = WorldView(run_id="old", now_s=NOW_S - 8_000.0)
    later = replace(old, run_id="later", now_s=NOW_S + 60.0)  # saved by this process itself
    history, _ = restarted(tmp_path / "history.db", ended, old, later)
    for run in ("ended", "old", "later"):
        (world,) = history.worlds(run)
        assert (world.awaited, world.is_live, world.has_ended) == (None, False, True)
