"""Real trainings with DDP over gloo whose own timers are read, on CPU as they would be on GPUs.

Rank 1 is slower in backward; by their clocks both ranks take equally long there.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from otel_straggler import semconv
from otel_straggler.client.recording import FORM

from .sinks import HttpSink
from .two_ranks import DOSE_S, STEPS, TOLERANCE_S, run_two_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(FORM != "native", reason="the fallback records no times of GPUs")
TRAININGS = ("plain", "static_graph", "accumulated", "two_modules")
Measured = dict[tuple[str, str, int], list[float]]
"""Seconds by training, span and rank."""


def run_job(trainings: tuple[str, ...], folder: Path) -> Measured:
    with run_two_ranks(trainings, folder, TIMED_DEVICE="cpu") as sink:
        return measured(sink)


def measured(sink: HttpSink) -> Measured:
    result: Measured = defaultdict(list)
    sections = {}
    for span in sink.spans():
        training, rank = span.attributes.get(semconv.PHASE, ""), span.resource[semconv.RANK]
        duration_ns = span.end_ns - span.start_ns
        result[training, span.name, rank].append(duration_ns / 1e9)
        sections[span.span_id] = span
    for span in sections.values():
        if span.name.rpartition("/")[2] in semconv.DDP_TIMERS:
            assert span.attributes[semconv.TIME_BASIS] == semconv.EVENTS_BASIS
            assert span.attributes[semconv.GPU_BUSY_TIME] == span.end_ns - span.start_ns
            around = sections[span.parent_id]
            assert around.name == span.attributes[semconv.SECTION_PARENT]
            assert around.attributes[semconv.STEP] == span.attributes[semconv.STEP]
    return result


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return run_job(("healthy", *TRAININGS), tmp_path_factory.mktemp("job"))


def slower_s(job: Measured, training: str, name: str) -> float:
    """How much longer rank 1 takes than rank 0. The shortest step counts: a busy machine only adds
    to some."""
    ranks = [job[training, name, rank] for rank in range(2)]
    assert all(len(each) >= STEPS - 1 for each in ranks)
    return min(ranks[1]) - min(ranks[0])


@pytest.mark.parametrize("training", TRAININGS)
def test_the_slow_rank_takes_longer_by_its_dose_until_its_last_gradient(
    job: Measured, training: str
) -> None:
    """What it takes longer, the other one waits."""
    assert abs(slower_s(job, training, "backward")) < TOLERANCE_S
    by_timers = slower_s(job, training, f"backward/{semconv.DDP_BACKWARD}")
    assert by_timers == pytest.approx(DOSE_S, abs=TOLERANCE_S)
    waited_s = [
        sorted(job[training, f"backward/{semconv.DDP_COMMUNICATION}", rank])[2] for rank in range(2)
    ]
    assert waited_s[0] - waited_s[1] == pytest.approx(DOSE_S, abs=TOLERANCE_S)


def test_ranks_of_one_speed_differ_little(job: Measured) -> None:
    """In forward, too."""
    for name in (f"backward/{semconv.DDP_BACKWARD}", f"forward/{semconv.DDP_FORWARD}"):
        assert abs(slower_s(job, "healthy", name)) < TOLERANCE_S


@pytest.mark.nightly
def test_a_compiled_model_is_timed_as_any_other(tmp_path: Path) -> None:
    """Nothing of ours is compiled with it."""
    job = run_job(("compiled",), tmp_path)
    by_timers = slower_s(job, "compiled", f"backward/{semconv.DDP_BACKWARD}")
    assert by_timers == pytest.approx(DOSE_S, abs=TOLERANCE_S)
