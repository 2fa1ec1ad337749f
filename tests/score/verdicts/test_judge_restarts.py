"""Restarts of the collector and of the job: what goes on, and what begins anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

from .worlds import (
    active,
    by_hand,
    ever_confirmed,
    made,
    newest,
    ranks,
    run_verdicts,
    slower,
    usual,
    with_sources,
)

SLOW = "rank/node-0/3"


def restarted(tables: tuple[StepTable, ...], at: int) -> VerdictEngine:
    """A collector that stops after so many tables, and another that goes on from its state."""
    state = stored(run_verdicts(tables[:at], ends=False).state())
    judge = VerdictEngine()
    judge.restore(state)
    for table in tables[at:]:
        judge.observe(table)
    judge.finish()
    return judge


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """As the history keeps it."""
    read: dict[str, Any] = decode_blob(encode_blob(state), where="test")
    return read


def changes(judge: VerdictEngine) -> list[tuple[str, str]]:
    return [(v.subject_id, v.state) for v in judge.changes if v.state != "suspect"]


@pytest.mark.parametrize("at", [1, 8, 11, 13, 15, 20, 23])
@pytest.mark.parametrize("fault", ["compute:1.3@rank3:step60", "data:0.3@rank5:step60-90"])
def test_a_restart_of_the_collector_changes_no_verdict(fault: str, at: int) -> None:
    """Before a fault, at its onset, in it, and when it is over."""
    tables = made("dp8", fault, steps=240)
    assert changes(restarted(tables, at)) == changes(run_verdicts(tables))


def test_a_restart_at_every_third_block_still_finds_what_lasts() -> None:
    """A collector that is killed again and again; the statistic of the onset goes with it."""
    tables = by_hand(slower(usual(100, 8), 3, 1.5, 40))
    judge = VerdictEngine()
    for at, table in enumerate(tables):
        if at % 3 == 0:
            state = stored(judge.state())
            judge = VerdictEngine()
            judge.restore(state)
        judge.observe(table)
    assert set(active(judge)) == {SLOW}


def test_a_restart_tells_nothing_twice_and_forgets_nothing() -> None:
    """The changes that were told stay, the sums go on."""
    tables = by_hand(slower(usual(160, 8), 3, 1.5, 40))
    before = run_verdicts(tables[:20], ends=False)
    after = restarted(tables, 20)
    assert changes(after) == changes(before) == [(SLOW, "confirmed")]
    here, there = run_verdicts(tables).summary(), after.summary()
    assert here is not None
    assert there is not None
    assert there.gpu_seconds_lost == pytest.approx(here.gpu_seconds_lost, rel=0.2)
    caused = {waits.rank: waits.caused_s for waits in here.waits}
    assert {waits.rank: waits.caused_s for waits in there.waits} == pytest.approx(caused)
    assert max(caused, key=caused.__getitem__) == 3


def test_a_healthy_run_stays_healthy_over_restarts() -> None:
    """Nothing is taken for a change that is none."""
    tables = by_hand(usual(120, 8))
    for at in (3, 12):
        assert restarted(tables, at).changes == ()


def test_who_is_always_a_little_slower_is_so_after_a_restart_too() -> None:
    """What is normal for a device is remembered."""
    tables = by_hand(slower(usual(240, 8, noise=0.005), 3, 1.02))
    assert restarted(tables, 30).changes == ()


def test_an_unknown_or_empty_state_is_a_fresh_start() -> None:
    """Of an older version."""
    judge = VerdictEngine()
    judge.restore({})
    assert stored(judge.state())
    for table in by_hand(slower(usual(60, 8), 3, 1.5, 20)):
        judge.observe(table)
    assert set(active(judge)) == {SLOW}


# --- the job ------------------------------------------------------------------------------------


def second_attempt(source: Source) -> Source:
    return replace(source, attempt=1, session_id=f"again{source.rank}")


def renumbered(source: Source) -> Source:
    """The other way round, on the same machines."""
    rank = 7 - source.rank
    return replace(second_attempt(source), rank=rank, parallel=(("data", rank),))


@pytest.mark.parametrize("change", [second_attempt, renumbered])
def test_a_slow_device_stays_the_same_subject_over_a_restart_of_the_job(change: Any) -> None:
    """One fault, not two, whatever its rank is called now."""
    tables = by_hand(slower(usual(160, 8), 3, 1.5, 30))
    judge = run_verdicts([*tables[:16], *(with_sources(table, change) for table in tables[16:])])
    assert changes(judge) == [(SLOW, "confirmed")]
    result = newest(judge)[SLOW]
    assert (result.attempt, result.rank) == (1, 4 if change is renumbered else 3)


def test_a_device_that_was_mended_recovers_after_the_restart_of_the_job() -> None:
    """Its successor on the same place is judged by itself."""
    seconds = usual(240, 8)
    tables = by_hand(slower(seconds[:80], 3, 1.5, 30)) + by_hand(seconds[80:], first_step=180)
    judge = run_verdicts([*tables[:16], *(with_sources(t, second_attempt) for t in tables[16:])])
    assert [state for _, state in changes(judge)] == ["confirmed", "recovered"]


def test_the_first_steps_of_an_attempt_are_warm_up() -> None:
    """Twenty; one rank compiles longer than the others."""
    seconds = usual(120, 8)
    seconds[60:78] = slower(seconds[60:78], 3, 4.0)
    tables = by_hand(seconds)
    again = [*tables[:12], *(with_sources(t, second_attempt) for t in tables[12:])]
    assert ever_confirmed(run_verdicts(again)) == set()
    assert ever_confirmed(run_verdicts(tables)) == {SLOW}


def test_a_device_that_is_gone_after_a_restart_is_no_trouble_any_more() -> None:
    """Its node was replaced."""
    tables = by_hand(slower(usual(80, 8), 3, 1.5, 30))
    spare = ranks(8, attempt=1, node="spare", session_id="x")
    healthy = by_hand(usual(80, 8), sources=spare, first_step=180)
    judge = run_verdicts([*tables, *healthy])
    assert changes(judge) == [(SLOW, "confirmed"), (SLOW, "recovered")]


def test_a_stray_process_that_claims_a_rank_does_not_end_the_world() -> None:
    """Somebody tries a script with the same run id."""
    tables = by_hand(slower(usual(100, 8), 3, 1.5, 30))
    stray = by_hand(usual(100, 1), sources=ranks(1, session_id="stray", node="laptop"))
    both = [table for pair in zip(tables, stray, strict=True) for table in pair]
    assert changes(run_verdicts(both)) == [(SLOW, "confirmed")]
