"""Windows of runs that are over, as the live page gets them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_straggler.collector import page_history
from otel_straggler.collector.page_history import PageHistory
from otel_straggler.errors import StragglerError
from otel_straggler.publish.history import History, RunEntry
from otel_straggler.publish.picture import Column


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
    reader = page_history.HistoryReader
    monkeypatch.setattr(
        page_history,
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
