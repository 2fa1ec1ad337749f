"""Pictures from a history: a run that is over is shown as it was seen last."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.rank_json import rank_json
from otel_straggler.collector.views.run_json import one_of, run_entry
from otel_straggler.collector.views.run_summary import read_summary, summary_value
from otel_straggler.collector.views.timeline import timeline_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.errors import InputError

from .worlds import NOW_S, seen_of

MAKER = ResponseMeta(version="1")


def summary_of(seen: WorldView) -> Summary:
    return Summary(
        run_id=seen.run_id, job=seen.job, group=seen.group, make=lambda: summary_value(seen)
    )


def view_of(
    history: FromHistory, run_id: str = "run", group: str | None = None
) -> WorldView | None:
    return one_of(history.worlds(run_id), group)


def kept(begin: Any, path: Path, *worlds: WorldView, **parts: Any) -> Callable[..., FromHistory]:
    """A history with these worlds, closed; opened again by a call."""
    history = begin()
    history.put(summaries=[summary_of(seen) for seen in worlds], **parts)
    history.close()
    return lambda now_s=NOW_S + 1e6, **more: FromHistory(
        HistoryReader(path), wall_s=lambda: now_s, **more
    )


def reported(seen: WorldView) -> Any:
    """The picture, as if the run were followed: what has ended is told in the past."""
    followed = page_json(replace(seen, is_live=True), MAKER)
    return json.loads(json.dumps(followed, allow_nan=False))


def test_a_summary_says_all_that_the_picture_needs(kit: Any) -> None:
    """But for the window and older changes of verdicts, which are in the history anyway."""
    live = seen_of(kit.window(ranks=8), kit.verdict(3), kit.verdict(5, section="data"))
    value = decode_blob(encode_blob(summary_value(live)), where="x")
    assert reported(replace(read_summary(value, where="x"), table=live.table)) == reported(live)
    assert read_summary(value, where="x").is_live is False


def test_a_run_is_shown_as_it_was_seen_last(begin: Any, kit: Any, path: Path) -> None:
    """The newest window, all changes of verdicts with the newest numbers, layout and states."""
    window = kit.window(7, ranks=8)
    verdicts = [kit.verdict(3, state="suspect", at_ns=5), kit.verdict(3, at_ns=6, slowdown=1.4)]
    live = seen_of(window, *verdicts[:1], replace(verdicts[1], slowdown=1.9))
    open_ = kept(begin, path, live, windows=[kit.window(6, ranks=8), window], changes=verdicts)
    result = view_of(open_())
    assert result is not None
    assert [(v.state, v.slowdown) for v in result.changes] == [("suspect", 1.5), ("confirmed", 1.9)]
    shown, expected = reported(result), reported(live)
    for run_view in (shown, expected):  # the history keeps five digits
        for name in ("slowdowns", "run"):
            run_view[name] = str(np.round(_numbers(run_view[name]), 3))
    assert shown == expected
    rank = rank_json(result, 3, open_().columns("run", ""), MAKER)
    assert rank["parallel"] == {"data": 1, "pipeline": 1}
    assert rank["gpu"]["tier"] == "events"
    assert rank["waits"] == {"caused_s": 9.0, "suffered_s": 1.0}
    assert len(rank["history"]["columns"]) == 2


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []


def test_a_run_goes_on_as_long_as_its_picture_is_fresh(begin: Any, kit: Any, path: Path) -> None:
    """Later nobody follows it any more; one that has ended is over at once."""
    live = seen_of(kit.window())
    ended = seen_of(kit.window(run_id="over"), finished_at_s=NOW_S, outcome="ok")
    open_ = kept(begin, path, live, ended)

    def is_live(run_id: str, later_s: float) -> bool:
        seen = view_of(open_(NOW_S + later_s), run_id)
        assert seen is not None
        return seen.is_live

    assert (is_live("run", 5.0), is_live("run", 500.0), is_live("over", 5.0)) == (
        True, False, False,
    )  # fmt: skip
    shown = page_json(view_of(open_(NOW_S + 500.0)) or live, MAKER)
    assert shown["answer"]["tone"] == "ended"


def test_every_group_is_a_world_and_the_one_in_trouble_comes_first(
    begin: Any, kit: Any, path: Path
) -> None:
    """A group of which there are windows only is one too."""
    actor, critic = kit.window(group="actor"), kit.window(group="critic")
    late = kit.window(group="late")
    calm = replace(seen_of(actor), hang=None)
    open_ = kept(begin, path, calm, seen_of(critic), windows=[actor, critic, late])
    worlds = open_().worlds("run")
    assert [seen.group for seen in worlds] == ["actor", "critic", "late"]
    assert {seen.groups for seen in worlds} == {("actor", "critic", "late")}
    assert [seen.world is not None for seen in worlds] == [True, True, False]
    chosen = view_of(open_())
    assert chosen is not None
    assert chosen.group == "critic"
    assert view_of(open_(), "run", "nobody") is None
    assert open_().worlds("no such run") == []
    assert run_entry(worlds)["ranks_reporting"] == 12


def test_columns_are_the_windows_between_two_times(begin: Any, kit: Any, path: Path) -> None:
    """Evenly chosen where there are too many; of one group; with the number of the window."""
    windows = [kit.window(number) for number in range(6)]
    open_ = kept(begin, path, windows=[*windows, kit.window(9, group="other")])
    ends = [window.end_ns / 1e9 for window in windows]
    columns = open_().columns("run", "")
    assert [column.seq for column in columns] == [1, 2, 3, 4, 5, 6]
    assert [column.first_step for column in columns] == [0, 10, 20, 30, 40, 50]
    assert [c.first_step for c in open_().columns("run", "", maximum=3)] == [0, 20, 50]
    between = open_().columns("run", "", from_s=ends[1], to_s=ends[3])
    assert [column.first_step for column in between] == [10, 20, 30]
    reported_ = timeline_json(columns, run_id="run", group="", section="forward")
    assert (reported_["first"], reported_["last"], reported_["ranks"]) == (1, 6, [0, 1, 2, 3])
    assert open_().columns("run", "", maximum=0) == []


def test_a_section_within_another_stays_there(begin: Any, kit: Any, path: Path) -> None:
    """So that its time is not added up twice."""
    window = kit.window()
    inner = replace(window.sections[2], parent="forward")
    nested = replace(window, sections=(*window.sections[:2], inner))
    open_ = kept(begin, path, windows=[nested])
    seen = view_of(open_())
    assert seen is not None
    assert seen.table is not None
    assert [section.parent for section in seen.table.sections] == ["", "", "forward"]


def test_a_history_without_summaries_shows_windows_and_verdicts(
    begin: Any, kit: Any, path: Path
) -> None:
    """As after a limit has dropped them."""
    result = view_of(kept(begin, path, windows=[kit.window()], changes=[kit.verdict(3)])())
    assert result is not None
    run_view = page_json(result, MAKER)
    assert run_view["ranks"]["rank"] == [0, 1, 2, 3]
    assert [v["rank"] for v in run_view["verdicts"]] == [3]
    assert run_view["run"]["state"] == "ended"
    assert run_view["answer"]["tone"] == "ended"
    assert None not in run_view["slowdowns"]["overall"]


BROKEN: dict[str, Any] = {
    "version": 99,
    "run_id": 5,
    "now_s": "late",
    "outcome": "lunch",
    "mode": "shout",
    "world_size": 1.5,
    "heartbeats": {"ranks": np.arange(3)},
    "hang": {"state": "bored"},
    "run_verdicts": {"changes": [{}]},
    "alerts": ["fire"],
    "maintenance": [{"node": 1}],
    "layout": [[3, [["data"]]]],
}


@pytest.mark.parametrize("part", BROKEN)
def test_a_summary_that_is_none_is_left_out_and_told(
    part: str, begin: Any, kit: Any, path: Path
) -> None:
    """What windows and verdicts say of the run is shown all the same."""
    window = kit.window()
    value = summary_value(seen_of(window)) | {part: BROKEN[part]}
    with pytest.raises(InputError, match="expected the summary of a run"):
        read_summary(value, where="x")
    open_ = kept(begin, path, windows=[window], changes=[kit.verdict(2)])
    connection = sqlite3.connect(path)
    row = ("run", "", 1, encode_blob(value))
    connection.execute("INSERT INTO summaries VALUES (?, ?, '', 0, ?, ?)", row)
    connection.commit()
    connection.close()
    result = view_of(open_())
    assert result is not None
    assert result.table is not None
    assert [verdict.rank for verdict in result.changes] == [2]


def test_every_part_of_a_found_or_signs_block_is_checked(kit: Any) -> None:
    """A table that is too short, of other numbers, or with states that there are not."""
    value = summary_value(seen_of(kit.window(ranks=4)))
    for part, name, wrong in (
        ("heartbeats", "step", np.arange(3)),
        ("heartbeats", "heartbeat_age_s", np.zeros(4, np.int32)),
        ("heartbeats", "nodes", ["a"]),
        ("heartbeats", "dropped", [{"queue_full": "3"}] * 4),
        ("hang", "rank_states", np.full(4, 99, np.int32)),
        ("hang", "timeout_s", np.zeros(5)),
        ("hang", "blame", {"kind": "bad luck", "culprits": 0, "victims": 0}),
        ("run_verdicts", "worlds", [{"run_id": "r", "heat": [[1, 2]]}]),
        ("run_verdicts", "worlds", [{"run_id": "r", "ledger": [{"section": "forward"}]}]),
        ("run_verdicts", "decisions", [{"action": "sue"}]),
    ):
        broken = value | {part: value[part] | {name: wrong}}
        with pytest.raises(InputError):
            read_summary(broken, where="x")


def test_a_damaged_window_is_passed_over(begin: Any, kit: Any, path: Path) -> None:
    """The one before it is shown."""
    open_ = kept(begin, path, windows=[kit.window(0), kit.window(1)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE windows SET blob = x'00' WHERE id = 2")
    connection.commit()
    connection.close()
    history = open_()
    result = view_of(history)
    assert result is not None
    assert result.table is not None
    assert result.table.first_step == 0
    assert [column.seq for column in history.columns("run", "")] == [1]
