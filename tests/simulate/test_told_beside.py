"""What a replayed run tells beside its spans: kernels, sensors of GPUs, what the time went to."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from otel_straggler import semconv
from otel_straggler.model.rank_metrics import PassthroughMetric
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.semconv import Metric
from otel_straggler.simulate.auxiliary_metrics import GPU_MODEL, Sensors
from otel_straggler.simulate.replay import Ending, Replay
from otel_straggler.simulate.runs import SimulatedRun

from .generated import QUIET, make
from .test_replay import Time

SPEED = 10.0
NOT_SIMULATED = {
    semconv.GPU_PCIE_WIDTH,
    semconv.HW_GPU_IO,
    semconv.RANK_TIMED_OUT,
    semconv.CHECKPOINT_LOAD_TIME,
    semconv.CHECKPOINT_INTERVAL,
    semconv.CHECKPOINT_MTBF,
    *semconv.LAUNCH_METRICS,
} | {metric for metric in semconv.HARDWARE_METRICS if semconv.GPU_UUID not in (metric.labels or ())}
"""Hosts, the links of GPUs, agents, launchers, and a manager of checkpoints."""


def reported_by(run: SimulatedRun, ending: Ending | None = None) -> list[DecodedMetrics]:
    """All metrics requests of a replay."""
    result: list[DecodedMetrics] = []

    def post(signal: str, body: bytes) -> None:
        if signal == "metrics":
            result.append(MetricDecoder().decode(body))

    sensors = Sensors(run.labels) if run.plan.report_hardware else None
    Replay(post, speed=SPEED, ending=ending, clock=Time(), sensors=sensors).run(run.batches())
    return result


def newest(requests: list[DecodedMetrics]) -> dict[tuple[int, Metric, tuple[str, ...]], float]:
    """By rank, metric and attributes."""
    reported: list[PassthroughMetric] = [one for each in requests for one in each.passthrough]
    return {(one.source.rank, one.metric, one.values): one.value for one in reported}


def of_metric(requests: list[DecodedMetrics], metric: Metric) -> dict[int, list[float]]:
    """Values by rank."""
    result: dict[int, list[float]] = defaultdict(list)
    for (rank, which, _), value in sorted(newest(requests).items(), key=str):
        if which is metric:
            result[rank].append(value)
    return result


def test_every_name_is_told() -> None:
    """All that a collector shows as told, by ranks that name the same GPU in their description."""
    run = make("dp4", "compute:1.5@rank2:step0", report_hardware=True, checkpoint_every=10)
    requests = reported_by(run)
    reported = {metric for _, metric, _ in newest(requests)}
    assert reported == set(semconv.PASSTHROUGH_METRICS) - NOT_SIMULATED
    beats = [beat for each in requests for beat in each.heartbeats]
    described = {b.source.rank: (b.source.device, b.source.device_model) for b in beats}
    assert described == {source.rank: (source.device, GPU_MODEL) for source in run.sources}
    assert len(set(described.values())) == 4
    for rank, metric, values in newest(requests):
        if metric in semconv.HARDWARE_METRICS:
            assert values[0] == described[rank][0]


def test_a_slow_gpu_is_hot_and_held_back() -> None:
    """Clock, power, heat and time throttled say why; the others are well."""
    run = make("dp4", "compute:1.5@rank2:step0", report_hardware=True)
    requests = reported_by(run)
    clocks = {rank: min(values) for rank, values in of_metric(requests, semconv.GPU_CLOCK).items()}
    assert clocks[2] == pytest.approx(clocks[0] / 1.5)
    power = of_metric(requests, semconv.HW_POWER)
    assert power[2][0] < 0.7 * power[0][0]
    heat = of_metric(requests, semconv.HW_TEMPERATURE)
    assert min(heat[2]) > max(heat[0])
    throttled = of_metric(requests, semconv.GPU_THROTTLED)
    assert sum(throttled[2]) > 5.0
    assert sum(throttled[0]) == 0.0


def test_totals_grow() -> None:
    """Energy is power times time."""
    run = make("dp2", report_hardware=True)
    energy = [
        one.value
        for each in reported_by(run)
        for one in each.passthrough
        if (one.metric, one.source.rank) == (semconv.HW_ENERGY, 0)
    ]
    assert energy == sorted(energy)
    assert energy[-1] > energy[0]


def test_a_rank_that_crashed_had_an_xid() -> None:
    """The error is told before the rank falls silent."""
    run = make("dp4", "crash@rank2:step20", report_hardware=True)
    result = newest(reported_by(run, Ending(silent=frozenset({2}), hold_s=10.0)))
    xids = {rank for rank, metric, values in result if metric is semconv.HW_ERRORS
            and values[-1].startswith("xid_")}  # fmt: skip
    assert xids == {2}


def test_kernels_are_counted_where_they_are_timed() -> None:
    """Of every rank, over sections as long as the kernels of its spans; else nothing is told."""
    assert all(each.kernel_times is None for each in reported_by(make("dp4")))
    run = make("dp4", gpu_timing="cupti", **QUIET)
    whole: dict[int, float] = defaultdict(float)
    for batch in run.batches():
        assert batch.gpu is not None
        for code, seconds in zip(batch.source.tolist(), batch.gpu.kernel_s.tolist(), strict=True):
            whole[code] += 0.0 if math.isnan(seconds) else seconds
    counted: dict[int, float] = defaultdict(float)
    for each in reported_by(run):
        if each.kernel_times is not None:
            times = each.kernel_times
            for code, seconds in zip(times.source.tolist(), times.sum_s.tolist(), strict=True):
                counted[times.sources[code].rank] += seconds
    assert counted == pytest.approx(whole, rel=1e-6)


def losses(requests: list[DecodedMetrics]) -> dict[str, float]:
    result = newest(requests).items()
    return {values[0]: value for (_, m, values), value in result if m is semconv.RUN_LOST}


def test_useful_and_lost_time_together_are_the_time_of_the_run() -> None:
    """Checkpoints, evaluations, data and waiting have their names; one rank tells it."""
    run = make("dp4", "compute:1.5@rank2:step0", checkpoint_every=20, eval_every=30, **QUIET)
    requests = reported_by(run)
    lost = losses(requests)
    assert set(lost) == set(semconv.LOSSES)
    assert min(lost[name] for name in ("checkpoint", "eval", "data", "stragglers")) > 0.0
    assert lost["hang"] == lost["restart"] == lost["redone"] == 0.0
    [useful] = of_metric(requests, semconv.RUN_PRODUCTIVE)[0]
    batches = list(run.batches(1))
    took_s = sum(
        float((b.start_ns * 1e-9 + b.duration_s).max() - b.start_ns.min() * 1e-9) for b in batches
    )
    assert useful + sum(lost.values()) == pytest.approx(took_s, rel=1e-3)
    assert of_metric(requests, semconv.RUN_GOODPUT) == {0: [pytest.approx(useful / took_s, 1e-3)]}


def test_a_hang_and_a_restart_cost_time() -> None:
    """Steps that are done again do not count as useful."""
    hung = make("dp4", "hang_never_joined@rank2:step20", steps=40)
    assert losses(reported_by(hung, Ending(hold_s=30.0)))["hang"] >= 25.0
    restarted = make("dp4", steps=60, restart_at_step=40, checkpoint_every=25)
    lost = losses(reported_by(restarted))
    assert lost["redone"] > 0.0
    assert lost["restart"] > 0.0
