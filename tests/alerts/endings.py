"""Runs about which everything can be told, and what may be told of them once they are over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.rule import (
    Culprit,
    FleetStatus,
    RunStatus,
    Score,
    Scores,
    SectionSpeed,
    TimedOut,
)
from otel_straggler.model.verdict import Verdict

from .test_both_ways import series_at

ENDINGS = ("finished", "failed", "cancelled", "preempted", "ended", "lost", "forgotten", "evicted")
HANGS = {
    "StragglerRunHung",
    "StragglerRankLost",
    "StragglerRankStuck",
    "StragglerRankTimedOut",
}
OF_THE_COLLECTOR = {rule.name for rule in CATALOGUE if "run_id" not in rule.labels}
STAY = {
    # The state of a run that is lost is what these are about; data of it is lost or not.
    "lost": HANGS
    | {
        "StragglerRanksMissing",
        "StragglerScoringFailing",
        "StragglerIdentityCollision",
        "StragglerSpansDropped",
    },
    "forgotten": {"StragglerRunForgotten"},
    # Monitoring knows nothing newer: the last word counts.
    "evicted": {
        "StragglerRunHung",
        "StragglerRunSilent",
        "StragglerRankLost",
        "StragglerRankStuck",
    },
}
"""Alerts that outlast the moment of an ending; after every other nothing about the run fires."""


def runs_that_end(
    ending: str, *, is_over: bool, lost: int, suffix: str = ""
) -> tuple[RunStatus, ...]:
    """All that can be told of three runs; once it ``is_over``, only their state is another.

    Args:
        ending: of ``ENDINGS``.
        lost: records lost so far.
        suffix: of the names of the runs.
    """
    if is_over and ending == "evicted":
        return ()
    runs = (slow(), replace(_unexplained(), dropped={"ring_full": lost}), _hung())
    if is_over:
        runs = tuple(_over(run, ending) for run in runs)
    return tuple(replace(run, run_id=f"{run.run_id}{suffix}") for run in runs)


def series_over(fleets: Iterable[FleetStatus]) -> Iterator[dict[str, str]]:
    """Input of promtool: a sample for each fleet, and a series that is gone is stale."""
    instants = [series_at(fleet) for fleet in fleets]
    for name in dict.fromkeys(name for instant in instants for name in instant):
        values, last = [], "_"
        for instant in instants:
            value = instant.get(name) or ("stale" if last not in ("_", "stale") else "_")
            values.append(value)
            last = value
        yield {"series": name, "values": " ".join(values)}


def _over(run: RunStatus, ending: str) -> RunStatus:
    """All else as it was: a series that nobody takes back."""
    run = replace(run, state=ending)  # type: ignore[arg-type]
    if ending == "lost":
        return run
    return replace(run, is_hung=False, culprits=())


def slow() -> RunStatus:
    """Of its ranks and hosts."""
    score = (Score(rank=5, node="n1", role="default", section="forward", value=0.4),)
    gpu = (Score(rank=5, node="n1", role="default", section="", value=0.4),)
    return RunStatus(
        run_id="slow",
        state="training",
        since_s=0.0,
        ranks={"ok": 8},
        last_scored_at_s=1e9,
        scores=Scores(section_relative=score, section_individual=score, gpu_relative=gpu),
        verdicts=(
            verdict("rank", 3, pages=True),
            verdict("rank", 4, pages=False),
            verdict("host", 1, pages=True),
            verdict("rank", 6, pages=False, cause="checkpoint"),
        ),
    )


def _unexplained() -> RunStatus:
    """As a whole, and its monitoring."""
    return RunStatus(
        run_id="odd",
        state="training",
        since_s=0.0,
        ranks={"ok": 6, "missing": 2},
        scores=Scores(
            speeds=(SectionSpeed(section="forward", median=0.6, ranks=8, below=8),),
        ),
        slowdown=1.4,
        hourly_goodput=0.4,
        clashes=1,
        is_failing=True,
        unscored=1,
        unscored_text="rank 2",
        coverage=0.5,
    )


def _hung() -> RunStatus:
    return RunStatus(
        run_id="hung",
        state="partly_lost",
        since_s=0.0,
        is_hung=True,
        ranks={"ok": 6, "lost": 2},
        culprits=(
            Culprit(rank=1, node="n0", role="default", why="lost"),
            Culprit(rank=2, node="n0", role="default", why="never_joined"),
        ),
        timed_out=(TimedOut(rank=1, node="n0", role="default", reason="heartbeat", seconds=60.0),),
    )


def verdict(scope: Any, n: int, *, pages: bool, cause: Any = "slow_gpu") -> Verdict:
    return Verdict(
        run_id="slow",
        subject_id=f"{scope}/{n}/{cause}",
        scope=scope,
        rank=n if scope == "rank" else None,
        node=f"n{n}",
        role="default" if scope == "rank" else "",
        section="forward",
        cause=cause,
        state="confirmed",
        slowdown=1.4,
        gpu_seconds_lost_per_hour=3_600.0,
        pages=pages,
    )
