"""What is shown of a run at its end: its last whole steps, of its last training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

from .collecting import Collecting

WINDOW, RANKS = 20, 4
RUN = "ending"


def steps_of(steps: int, *faults: str, session: str = "", **plan: Any) -> list[ObservationBatch]:
    """Rows of a run, ten steps at once."""
    run = generate(
        RunPlan(
            layout=Layout(dp=RANKS),
            steps=steps,
            noise=0.005,
            spikes=0.0,
            microbatches=1,
            ranks_per_node=1,
            faults=tuple(map(Fault.parse, faults)),
            run_id=RUN,
            **{"start_ns": 1_790_000_000 * 10**9, "step_s": 0.5, **plan},
        )
    )
    return [of_session(batch, session) for batch in run.batches(10)]


def of_session(batch: ObservationBatch, session: str) -> ObservationBatch:
    sources = (replace(each, session_id=each.session_id + session) for each in batch.sources)
    return replace(batch, sources=tuple(sources))


def part(batch: ObservationBatch, *sections: str) -> ObservationBatch:
    names = [section.name in sections for section in batch.sections]
    return batch.take(batch.step == batch.step.min()).take(
        [names[code] for code in batch.section[batch.step == batch.step.min()].tolist()]
    )


@pytest.mark.parametrize("begun", [("data_loading",), ("data_loading", "forward")])
def test_a_step_that_was_only_begun_is_not_what_is_shown(begun: tuple[str, ...]) -> None:
    """Five windows, and the fetch that ends the loader, or the step in which all were killed."""
    collecting = Collecting(RUN, WINDOW)
    *batches, next_one = steps_of(5 * WINDOW + 10)
    sources = next_one.sources
    collecting.observe(*batches)
    collecting.observe(part(next_one, *begun))
    collecting.end(sources, 5 * WINDOW)
    window, page = collecting.report()["windows"][-1], collecting.page()
    assert (window["first_step"], window["last_step"]) == (4 * WINDOW, 5 * WINDOW - 1)
    assert "backward" in window["section_step_s"]
    assert page["slowest_step_s"] == pytest.approx(0.49, rel=0.1)
    assert page["step_s"] == pytest.approx(0.5, rel=0.1)
    assert page["resolvable_slowdown"] < 1.11  # of so few ranks
    assert len(collecting.samples(semconv.SECTION_MEDIAN, section="backward")) == RANKS


def test_a_last_window_with_one_whole_step_is_shown() -> None:
    """It is a window of the run."""
    collecting = Collecting(RUN, WINDOW)
    *batches, next_one = steps_of(5 * WINDOW + 10)
    collecting.observe(*batches)
    collecting.observe(next_one.take(next_one.step == 5 * WINDOW))
    collecting.end(next_one.sources, 5 * WINDOW)
    assert collecting.report()["windows"][-1]["last_step"] == 5 * WINDOW


def test_a_second_training_in_one_process_is_what_is_shown_at_its_end() -> None:
    """Steps go back to 0; the last window of the first training does not close over the second."""
    collecting = Collecting(RUN, WINDOW)
    first = steps_of(6 * WINDOW, step_s=0.02)
    later_ns = int((first[-1].start_ns + first[-1].duration_s * 1e9).max()) + 10**8
    second = steps_of(
        6 * WINDOW, "compute:2@rank2:step0", session="again", start_ns=later_ns, seed=1, step_s=0.02
    )
    collecting.observe(*first)
    shown = []
    for batch in second:
        collecting.observe(batch)
        shown.append(collecting.report()["windows"][-1])
    collecting.end(second[-1].sources, 6 * WINDOW - 1)
    shown.append(collecting.report()["windows"][-1])
    of_second = [each for each in shown if each["section_relative_scores"]["backward"]["2"] < 0.7]
    assert of_second == shown[-len(of_second) :]
    assert len(of_second) > len(shown) // 2
    assert shown[-1]["last_step"] == 6 * WINDOW - 1
    current = collecting.view.run_verdicts.current
    [verdict] = [each for each in current if each.state == "confirmed"]
    assert (verdict.rank, verdict.since_step or 0) == (2, pytest.approx(0, abs=25))
