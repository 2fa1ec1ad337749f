"""What the alerts are shown of a run: whom it may call, who is to blame, how many are where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.alerts.rule import RunStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.runs.run import World
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.views.alert_input import watched_worlds
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.verdict import RunVerdicts, hang_subject

from .watched_world import WatchedWorld

NOW = 1_790_000_000.0
EVERYWHERE = frozenset(f"node-{rank}" for rank in range(4))


def source(rank: int, session: str = "a") -> Source:
    return Source(run_id="run", rank=rank, node=f"node-{rank}", world_size=4, session_id=session)


def seen(
    *, silent: tuple[int, ...] = (), absent: tuple[int, ...] = (), **reported: Any
) -> tuple[RunView, World]:
    """A run of four ranks after five minutes; some fell silent four minutes ago."""
    world = RunStore().world("run", "")
    for at_s in range(0, 301, 5):
        for rank in range(4):
            if rank in absent or (rank in silent and at_s > 60):
                continue
            beat = Heartbeat(
                source=source(rank),
                sent_at_s=NOW + at_s,
                progress_at_s=NOW + min(at_s, 60),
                step=at_s,
                open_section="forward",
                **reported,
            )
            world.liveness.observe_heartbeat(beat, NOW + at_s)
        status = world.liveness.status
        assert status is not None
        result = world.hangs.evaluate(status, NOW + at_s)
    assert result is not None
    view = RunView(
        run_id="run", now_s=NOW + 300, jobs={"": "llm"}, worlds={"": status}, hangs={"": result}
    )
    return view, world


def watched(
    run: tuple[RunView, World],
    mode: Any = "page",
    *,
    acknowledged: bool = False,
    nodes: frozenset[str] = frozenset(),
    **changes: Any,
) -> list[RunStatus]:
    view, world = run
    if acknowledged:
        changes["run_verdicts"] = RunVerdicts(silenced=frozenset({hang_subject("")}))
    view = replace(view, mode=mode, **changes)
    return list(watched_worlds(view, {"": world}, nodes, AlertSettings()))


def only(run: tuple[RunView, World], **how: Any) -> RunStatus:
    (result,) = watched(run, **how)
    return result


def test_a_collector_signs_what_it_shows(kit: Any) -> None:
    world = WatchedWorld(kit.settings())
    world.live(5.0)
    shown = world.watched
    assert (shown.collector, shown.pages) == ("c", True)
    assert shown.now_s == pytest.approx(world.now_s)
    assert (shown.runs[0].job, shown.runs[0].attempt, shown.runs[0].clashes) == ("job", 0, 0)


@pytest.mark.parametrize(
    ("mode", "reported", "pages"),
    [
        ("page", None, True),
        ("page", False, False),
        ("observe", None, False),
        ("observe", True, False),
    ],
)
def test_a_run_calls_people_if_it_and_its_collector_may(
    mode: str, reported: Any, pages: bool
) -> None:
    """A run that says nothing may."""
    assert only(seen(page=reported), mode=mode).pages == pages


def test_ranks_that_are_lost_are_named_with_their_nodes() -> None:
    """Half of the world is a quorum, a quarter is none."""
    run = only(seen(silent=(1, 3)))
    assert [(c.rank, c.node, c.why) for c in run.culprits] == [
        (1, "node-1", "lost"),
        (3, "node-3", "lost"),
    ]
    assert (run.state, run.is_hung, run.why) == ("partly_lost", True, "lost")
    assert run.hang_text
    assert not only(seen(silent=(2,))).is_hung


def test_a_hang_of_which_somebody_has_taken_note_is_none_and_names_nobody() -> None:
    """Why it stands is told all the same."""
    run = only(seen(silent=(1, 3)), acknowledged=True)
    assert (run.is_hung, run.culprits, run.why) == (False, (), "lost")


def test_a_run_without_heartbeats_is_over_once_its_spans_stop() -> None:
    """Nobody says that it has ended: what was slow then is not told of for another hour."""
    view, world = seen()
    last_s = view.worlds[""].touched_at_s
    for passed_s, state in ((60.0, "starting"), (600.0, "lost")):
        later = replace(view, hangs={}, now_s=last_s + passed_s, _worlds={})
        run = replace(only((later, world)), ranks={})
        assert (run.state, run.allows("working")) == (state, state == "starting")


def test_nobody_is_to_blame_for_a_run_that_trains() -> None:
    run = only(seen())
    assert (run.state, run.is_hung, run.why, run.hang_text, run.culprits) == (
        "training",
        False,
        None,
        "",
        (),
    )
    assert only(seen(), hangs={}).state == "starting"


@pytest.mark.parametrize(
    ("nodes", "pages"),
    [
        (frozenset(), True),
        (frozenset({"node-1"}), True),
        (frozenset({"node-1", "node-3"}), False),
        (EVERYWHERE, False),
    ],
)
def test_a_hang_calls_nobody_if_all_it_waits_for_are_under_maintenance(
    nodes: frozenset[str], pages: bool
) -> None:
    """One that is not is enough."""
    assert only(seen(silent=(1, 3)), nodes=nodes).pages == pages


def test_maintenance_hides_nothing_of_a_run_that_waits_for_nobody() -> None:
    assert only(seen(), nodes=EVERYWHERE).pages


@pytest.mark.parametrize(
    ("silent", "absent", "states"),
    [
        ((), (), {"ok": 4}),
        ((1,), (), {"ok": 3, "lost": 1}),
        ((), (2, 3), {"ok": 2, "missing": 2}),
        ((1,), (2,), {"ok": 2, "lost": 1, "missing": 1}),
    ],
)
def test_every_rank_is_counted_once(silent: Any, absent: Any, states: dict[str, int]) -> None:
    """Who was never heard of is missing, and not starting."""
    run = seen(silent=silent, absent=absent)
    counts = {state: n for state, n in only(run).ranks.items() if n}
    ok = sum(counts.pop(state, 0) for state in ("ok", "late", "stuck"))
    assert {"ok": ok, **counts} == states


def test_what_people_have_silenced_is_not_shown(by_hand: Any) -> None:
    """But for what has to end because of it. Nor a verdict of another group, but under that."""
    slow, other = by_hand.verdict(), by_hand.verdict(group="actor", subject_id="x")
    run_verdicts = RunVerdicts(changes=(slow, other))
    shown = watched(seen(), run_verdicts=run_verdicts)
    assert {run.group: run.verdicts for run in shown} == {"": (slow,), "actor": (other,)}
    quiet = replace(run_verdicts, silenced=frozenset({slow.subject_id}))
    shown = watched(seen(), run_verdicts=quiet)
    assert {run.group: (run.verdicts, run.silenced) for run in shown} == {
        "": ((), (slow,)),
        "actor": ((other,), ()),
    }
    recovered = replace(quiet, changes=(replace(slow, state="recovered"), other))
    assert all(run.silenced == () for run in watched(seen(), run_verdicts=recovered))


def test_two_sessions_of_a_rank_are_one_clash() -> None:
    """However many of them there are."""
    clashes = (source(1, "a"), source(1, "b"), source(2, "a"))
    assert only(seen(), clashes=clashes).clashes == 2
