"""Real trainings over gloo: whom all others wait for is told by what each rank has not waited.

All trainings run in one job of two ranks, one of which is slower in backward, where no rank's own
clock shows it: the others wait for it there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import pytest

from otel_straggler import semconv
from otel_straggler.native import REASON, VARIABLE

from .sinks import HttpSink
from .two_ranks import DOSE_S, STEPS, TOLERANCE_S, run_two_ranks

pytest.importorskip("torch")

TRAININGS = ("plain", "static_graph", "find_unused", "small_buckets", "accumulated", "two_modules",
             "reentrant", "checkpointed", "sharded", "tensor_parallel")  # fmt: skip
"""In all of these ranks wait inside backward."""
Measured = dict[tuple[str, str, int], list[tuple[float, float]]]
"""Durations and waits in s, by training, span and rank."""


def run_job(trainings: Iterable[str], folder: Path, **env: str) -> Measured:
    with run_two_ranks(trainings, folder, **env) as sink:
        return measured(sink)


def measured(sink: HttpSink) -> Measured:
    result: Measured = defaultdict(list)
    for span in sink.spans():
        wait_ns = span.attributes.get(semconv.COLLECTIVE_WAIT_TIME)
        basis = semconv.HOST_BASIS if wait_ns is None else semconv.COLLECTIVE_BASIS
        assert span.attributes[semconv.TIME_BASIS] == basis
        duration_ns = span.end_ns - span.start_ns
        assert 0 < (wait_ns or 1) <= duration_ns
        key = span.attributes.get(semconv.PHASE, ""), span.name, span.resource[semconv.RANK]
        result[key].append((duration_ns / 1e9, (wait_ns or 0) / 1e9))
    return result


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return run_job(["healthy", *TRAININGS, "by_hand"], tmp_path_factory.mktemp("job"))


def slower_s(job: Measured, training: str, name: str) -> tuple[float, float]:
    """How much longer rank 1 takes than rank 0: by its clock, and without waiting. Its shortest
    step counts: a busy machine only adds to some."""
    ranks = [job[training, name, rank] for rank in range(2)]
    assert [len(runs) for runs in ranks] == [STEPS, STEPS]
    host_s = [median(duration_s for duration_s, _ in runs) for runs in ranks]
    own_s = [min(duration_s - wait_s for duration_s, wait_s in runs) for runs in ranks]
    return host_s[1] - host_s[0], own_s[1] - own_s[0]


@pytest.mark.parametrize("training", TRAININGS)
def test_a_rank_slower_in_backward_is_slower_by_what_it_did_not_wait(
    job: Measured, training: str
) -> None:
    """By as much as was planted, while by their clocks all ranks take equally long."""
    host_s, own_s = slower_s(job, training, "backward")
    assert abs(host_s) < TOLERANCE_S
    assert own_s == pytest.approx(DOSE_S, abs=TOLERANCE_S)
    assert all(wait_s > 0 for rank in range(2) for _, wait_s in job[training, "backward", rank])


def test_ranks_of_one_speed_differ_little_in_their_own_time(job: Measured) -> None:
    """Nobody is named where nobody is slow."""
    _, own_s = slower_s(job, "healthy", "backward")
    assert abs(own_s) < TOLERANCE_S


def test_a_wait_outside_of_all_sections_is_in_the_step(job: Measured) -> None:
    """Gradients averaged by hand: steps take equally long, and backward says itself who is slow."""
    host_s, own_s = slower_s(job, "by_hand", "step")
    assert abs(host_s) < TOLERANCE_S
    assert own_s == pytest.approx(DOSE_S, abs=TOLERANCE_S)
    of_backward = slower_s(job, "by_hand", "backward")
    assert of_backward == pytest.approx((DOSE_S, DOSE_S), abs=TOLERANCE_S)


@pytest.mark.nightly
def test_a_compiled_model_hides_nothing(tmp_path: Path) -> None:
    """Its gradients are averaged as those of any other."""
    host_s, own_s = slower_s(run_job(["compiled"], tmp_path), "compiled", "backward")
    assert abs(host_s) < TOLERANCE_S
    assert own_s == pytest.approx(DOSE_S, abs=TOLERANCE_S)


@pytest.mark.nightly
@pytest.mark.skipif(bool(REASON), reason=f"{REASON}: the other tests ran with this recorder")
def test_the_fallback_in_python_measures_the_same(tmp_path: Path) -> None:
    """Recorder and exporter without the native part."""
    job = run_job(["plain"], tmp_path, **{VARIABLE: "off"})
    host_s, own_s = slower_s(job, "plain", "backward")
    assert abs(host_s) < TOLERANCE_S
    assert own_s == pytest.approx(DOSE_S, abs=TOLERANCE_S)
