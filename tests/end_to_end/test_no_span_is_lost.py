"""A small dose of ``python -m benchmarks.no_loss``: every span counts once over restarts."""

from __future__ import annotations

from typing import Any

from benchmarks.no_loss.account import account
from benchmarks.no_loss.course import Dose, run


def outcome_of(dose: Dose) -> dict[str, Any]:
    outcome = run(dose)
    result = account(outcome)
    assert result["recorded"] == dose.spans
    assert result["never_recorded"] == 0
    assert len(result["endings"]) == len(dose.endings)
    return result


def test_a_collector_that_restarts_loses_nothing_and_counts_nothing_twice() -> None:
    """10,000 spans a second of four processes; it is told to end, and later it is killed. What was
    taken by one that is killed and not passed on yet is all that may be missing."""
    for seconds in (9.0, 27.0, 54.0):
        result = outcome_of(Dose(seconds=seconds, endings=("TERM", "KILL"), away_s=1.0))
        if 10 * result["collectors"][-1]["spans"] > result["recorded"]:
            break  # else the machine was held up: the killed one had taken all there was
    reported, _ = result["endings"]
    assert (reported["missing"], reported["arrived_again"]) == (0, 0), result
    assert result["unexplained"] == 0, result
    assert result["dropped_by_producers"] == {}
    for ended in (result["collectors"][0], result["collectors"][-1]):
        assert set(ended["forwarded"]) == {"sent"}


def test_a_collector_with_a_spool_that_is_killed_loses_nothing_and_counts_nothing_twice() -> None:
    """Killed three times: every run that was recorded is in one window of the history.
    ``python -m benchmarks.no_loss --restarts KILL*20 --spool`` is the large dose."""
    dose = Dose(seconds=6.0, rate=2_000, endings=("KILL",) * 3, away_s=0.2, has_spool=True)
    result = outcome_of(dose)
    assert result["dropped_by_producers"] == {}
    sections = dose.spans - dose.processes * dose.steps
    assert result["history"] == {
        "recorded": sections,
        "counted": sections,
        "lost": 0,
        "counted_twice": 0,
    }


def test_what_a_full_queue_gives_up_is_counted_to_the_last_run() -> None:
    """Away too long for the queue, with hot sections folded: recorded = arrived + dropped."""
    dose = Dose(seconds=6.0, endings=("TERM",), away_s=2.0, span_budget=200, queue_bytes=100_000)
    result = outcome_of(dose)
    assert result["is_exact"], result
    assert set(result["dropped_by_producers"]) == {"queue_full"}
    assert result["arrived"] < result["recorded"] == dose.spans
