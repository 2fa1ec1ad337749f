"""A rank is compared with its own past in the same work: simulated runs through a collector, from
spans to the text of the alert."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from otel_straggler import semconv
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Alert
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

from .collecting import Collecting

RANKS, START_S = 12, 1_790_000_000
OWN_PAST = ("StragglerRankDegraded", "StragglerRunDegraded")
SETTINGS = AlertSettings(score_for_seconds=60.0)
_BEST = re.compile(r"Its best was ([\d.]+)ms, at 2026-09-21 (\d\d:\d\d) UTC\.")


def plan(run_id: str, start_s: float, *faults: Fault, step_s: float, **more: Any) -> RunPlan:
    return RunPlan(
        layout=Layout(dp=RANKS),
        microbatches=1,
        step_s=step_s,
        run_id=run_id,
        start_ns=int(start_s * 1e9),
        faults=faults,
        **more,
    )


def slow(first_step: int, *ranks: int) -> Fault:
    return replace(Fault.parse(f"compute:1.6@rank{ranks[0]}:step{first_step}"), ranks=ranks)


def told(plans: Iterable[RunPlan], collecting: Collecting) -> dict[tuple[str, str, str], Alert]:
    """All alerts on the own past that ever fired, by name, run and rank; with the newest text."""
    evaluator, result = AlertEvaluator(SETTINGS), {}
    for each in plans:
        for batch in generate(each).batches(10):
            collecting.observe(batch)
            for alert in evaluator.evaluate(collecting.worker.snapshot.watched):
                if alert.name in OWN_PAST:
                    labels = alert.labels
                    result[alert.name, labels["run_id"], labels.get("rank", "")] = alert
    return result


def test_a_small_configuration_is_no_past_of_the_real_one() -> None:
    """Tried on the same hosts by the same script: no rank has become slower, nor has the run."""
    small = plan("small", START_S, step_s=0.25, steps=200)
    real = plan("real", START_S + 100, step_s=2.0, steps=200)
    collecting = Collecting("real")
    assert told([small, real], collecting) == {}


def test_a_healthy_run_that_is_started_again_has_no_alert() -> None:
    """With other random numbers."""
    runs = [plan(f"run-{n}", START_S + 300 * n, step_s=1.0, steps=200, seed=n) for n in range(3)]
    assert told(runs, Collecting("run-2")) == {}


def test_a_rank_that_has_become_slower_is_one_alert_with_its_best_and_when() -> None:
    """In the run itself."""
    run = plan("run", START_S, slow(120, 3), step_s=1.0, steps=300)
    collecting = Collecting("run")
    alerts = told([run], collecting)
    assert list(alerts) == [("StragglerRankDegraded", "run", "3")]
    [alert] = alerts.values()
    text = alert.annotations["description"]
    assert "Rank 3 on node-0 of run run runs at 6" in text
    assert "own best speed in section " in text
    assert _BEST.search(text), text
    assert collecting.samples(semconv.RANK_BEST, rank="3")


def test_a_device_that_is_slower_in_the_next_run_or_attempt_is_found() -> None:
    """In a run of the same job that does the same work, and after a restart."""
    before = plan("before", START_S, step_s=1.0, steps=120)
    after = plan("after", START_S + 200, slow(0, 3), step_s=1.0, steps=200, seed=1)
    alerts = told([before, after], Collecting("after"))
    assert list(alerts) == [("StragglerRankDegraded", "after", "3")]
    again = plan("again", START_S, slow(120, 5), step_s=1.0, steps=300, restart_at_step=120)
    alerts = told([again], Collecting("again"))
    assert list(alerts) == [("StragglerRankDegraded", "again", "5")]


def test_where_all_ranks_have_moved_together_it_is_none_of_them() -> None:
    """The run has an alert; one that is far behind the others has its own."""
    every = slow(120, *range(RANKS))
    together = plan("run", START_S, every, step_s=1.0, steps=300)
    assert list(told([together], Collecting("run"))) == [("StragglerRunDegraded", "run", "")]
    one_more = plan("run", START_S, every, slow(150, 2), step_s=1.0, steps=300)
    assert set(told([one_more], Collecting("run"))) == {
        ("StragglerRunDegraded", "run", ""),
        ("StragglerRankDegraded", "run", "2"),
    }
