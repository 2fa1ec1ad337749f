"""Sensors, kernels, checkpoints and goodput: the newest is shown, the old goes, a budget holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import constant_labels
from otel_straggler.collector.metrics.passthrough_series import (
    passthrough_of_ranks,
    passthrough_of_run,
)
from otel_straggler.collector.metrics.verdict_series import RunLabels
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.passthrough import KEPT_S
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.model.kernels import KernelCell, KernelTimesBuilder
from otel_straggler.model.observation import BatchBuilder, Kernel, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import PassthroughMetric
from otel_straggler.otlp.metric_rules import DecodedMetrics

NOW_S = 1_800_000_000.0
RUN = RunLabels(run_id="run", jobs={"": "job"}, constant=constant_labels("c"))
GPU = ("GPU-1", "gpu")


def source(rank: int = 0, attempt: int = 0, session: str = "s") -> Source:
    return Source(
        run_id="run", rank=rank, job="job", node="n", attempt=attempt, session_id=f"{session}{rank}"
    )


def power(value: float, who: Source | None = None, gpu: str = "GPU-1") -> PassthroughMetric:
    return PassthroughMetric(who or source(), semconv.HW_POWER, (gpu, "gpu"), value)


def report(store: RunStore, *reported: PassthroughMetric, now_s: float = NOW_S) -> None:
    store.observe_passthrough(DecodedMetrics(heartbeats=(), passthrough=reported, points={}), now_s)


def report_kernels(
    store: RunStore, *points: tuple[str, float, int], who: Source | None = None
) -> None:
    """Name, seconds, and the second in which the interval ended."""
    builder = KernelTimesBuilder()
    for name, seconds, end_s in points:
        builder.add(
            who or source(), KernelCell("forward", Kernel(name, "compute")),
            start_ns=(end_s - 1) * 10**9, end_ns=end_s * 10**9, count=4, sum_s=seconds,
            min_s=0.1, max_s=0.1, scale=6, first=0, runs=np.array([4], np.int64),
        )  # fmt: skip
    times = builder.build()
    store.observe_passthrough(DecodedMetrics(heartbeats=(), kernel_times=times, points={}), NOW_S)


def shown(
    store: RunStore, worlds: dict[str, WorldStatus] | None = None, budget: int = 1_000,
    slow: frozenset[tuple[str, int]] = frozenset(),
) -> dict[str, list[str]]:  # fmt: skip
    """Lines by the name of their metric."""
    its = {group: world.passthrough for group, world in store.run("run").worlds.items()}
    families = passthrough_of_run(its, RUN)
    families.extend(passthrough_of_ranks(its, worlds or {}, RUN, budget, slow))
    lines: dict[str, list[str]] = {}
    for line in families.render().decode().splitlines():
        if not line.startswith("#"):
            lines.setdefault(line.split("{")[0], []).append(line)
    return lines


@pytest.fixture
def store() -> RunStore:
    return RunStore()


def test_the_newest_reading_is_shown_with_the_labels_of_the_rank(store: RunStore) -> None:
    """Names as OpenTelemetry's translator makes them."""
    report(store, power(300.0))
    report(store, power(320.5))
    assert shown(store)["hw_power_watts"] == [
        (
            'hw_power_watts{hw_id="GPU-1",hw_type="gpu",run_id="run",job_name="job",group="",rank="0",'
            'node="n",role="default",collector="c"} 320.5'
        )
    ]


def test_a_sensor_that_falls_silent_has_no_value(store: RunStore) -> None:
    """Nobody takes the power of yesterday for that of now."""
    report(store, power(300.0, gpu="GPU-1"))
    report(store, power(310.0, gpu="GPU-2"), now_s=NOW_S + KEPT_S)
    store.world("run", "").passthrough.drop_old(NOW_S + KEPT_S + 1.0)
    [line] = shown(store)["hw_power_watts"]
    assert 'hw_id="GPU-2"' in line
    store.evict("run")
    assert shown(store) == {}


def test_ranks_of_an_older_attempt_and_ranks_that_are_gone_are_left_out(
    store: RunStore,
) -> None:
    """A world that shrank has no sensors and no kernels of ranks that it lost."""
    world = WorldStatus(1, ranks={0: RankStatus(source(0, 1), NOW_S, NOW_S)})
    report(store, power(1.0, source(0, 1)), power(2.0, source(0, 0)), power(3.0, source(1, 1)))
    report_kernels(store, ("gemm", 1.0, 10), who=source(1, 1))
    lines = shown(store, {"": world})
    assert [line.rpartition(" ")[2] for line in lines["hw_power_watts"]] == ["1.0"]
    assert "straggler_kernel_time_seconds_total" not in lines


def test_slow_ranks_keep_their_series_and_the_others_are_counted(store: RunStore) -> None:
    """Even where nothing is left of the budget."""
    for rank in range(8):
        report(store, power(100.0 + rank, source(rank)))
        report_kernels(store, ("gemm", 1.0, 10), who=source(rank))
    lines = shown(store, budget=-5, slow=frozenset({("", 5)}))
    for name in ("hw_power_watts", "straggler_kernel_time_seconds_total"):
        [line] = lines[name]
        assert 'rank="5"' in line
        [folded] = [x for x in lines["straggler_collector_series_folded"] if f'"{name}"' in x]
        assert folded.endswith(" 7")
    some = shown(store, budget=5)
    assert [line.rpartition(" ")[2] for line in some["hw_power_watts"]] == [
        "100.0", "101.0", "102.0", "103.0",
    ]  # fmt: skip


def test_kernels_add_up_and_a_repeated_request_counts_once(store: RunStore) -> None:
    """By name, over all intervals; the ten that took most."""
    many = [(f"k{n:02}", 1.0 + n, 10) for n in range(12)]
    report_kernels(store, *many)
    report_kernels(store, *many)
    report_kernels(store, ("k11", 2.0, 20), (semconv.OTHER_KERNEL, 500.0, 20))
    lines = shown(store)["straggler_kernel_time_seconds_total"]
    values = {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}
    assert len(values) == 10
    assert values["k11"] == pytest.approx(14.0)
    assert "k01" not in values
    [runs] = [x for x in shown(store)["straggler_kernel_runs_total"] if '"k11"' in x]
    assert runs.endswith(" 8")


def test_a_new_process_counts_its_kernels_from_0(store: RunStore) -> None:
    """As Prometheus expects it of a counter."""
    report_kernels(store, ("gemm", 5.0, 10))
    report_kernels(store, ("gemm", 1.0, 20), who=source(session="t"))
    [line] = shown(store)["straggler_kernel_time_seconds_total"]
    assert line.endswith(" 1.0")


def test_long_names_of_kernels_are_cut_and_stay_apart(store: RunStore) -> None:
    """Two series with equal labels would be refused by Prometheus."""
    report_kernels(store, ("x" * 900, 1.0, 10), ("x" * 901, 2.0, 10))
    lines = shown(store)["straggler_kernel_time_seconds_total"]
    names = {line.split('"')[1] for line in lines}
    assert sorted(map(len, names)) == [200, 200]


def checkpoint(store: RunStore, rank: int, step: int, end_s: float, attempt: int = 0) -> None:
    builder = BatchBuilder()
    section = builder.section_code(Section("save", "checkpoint"))
    start_ns = int((end_s - 1.0) * 1e9)
    builder.add(source(rank, attempt), section, start_ns=start_ns, duration_s=1.0, step=step)
    store.observe_spans(builder.build())


def test_a_checkpoint_has_one_time(store: RunStore) -> None:
    """That of the rank that told it first; a new one, or one after a restart, has its own."""

    def reported() -> str:
        [line] = shown(store)["straggler_run_last_checkpoint_timestamp_seconds"]
        return line.rpartition(" ")[2]

    checkpoint(store, 0, step=50, end_s=100.0)
    checkpoint(store, 1, step=50, end_s=101.0)
    assert float(reported()) == pytest.approx(100.0)
    checkpoint(store, 1, step=100, end_s=200.0)
    checkpoint(store, 0, step=50, end_s=300.0)
    assert float(reported()) == pytest.approx(200.0)
    checkpoint(store, 0, step=60, end_s=400.0, attempt=1)
    assert float(reported()) == pytest.approx(400.0)


def test_checkpoints_without_steps_are_told_apart_by_time(store: RunStore) -> None:
    """Ends within seconds are one checkpoint of several ranks."""
    for end_s in (100.0, 103.0, 120.0):
        checkpoint(store, 0, step=-1, end_s=end_s)
    [line] = shown(store)["straggler_run_last_checkpoint_timestamp_seconds"]
    assert float(line.rpartition(" ")[2]) == pytest.approx(120.0)


def test_goodput_is_that_of_the_rank_that_told_it_last(store: RunStore) -> None:
    """One for each group, with the labels of the run only."""
    one = PassthroughMetric(source(0), semconv.RUN_GOODPUT, (), 0.9)
    report(store, one)
    report(store, replace(one, source=source(3), value=0.8), now_s=NOW_S + 5.0)
    lost = PassthroughMetric(source(3), semconv.RUN_LOST, ("checkpoint",), 12.0)
    report(store, lost, now_s=NOW_S + 5.0)
    lines = shown(store)
    assert lines["straggler_run_goodput"] == [
        'straggler_run_goodput{run_id="run",job_name="job",group="",collector="c"} 0.8'
    ]
    [line] = lines["straggler_run_lost_time_seconds"]
    assert 'reason="checkpoint"' in line
    assert 'rank="' not in line


def test_restarts_are_of_nodes_also_where_these_have_other_ranks_than_before() -> None:
    """One series a node and reason: two alike, and Prometheus refuses the page."""
    store = RunStore()

    def restarts(rank: int, node: str, value: float, attempt: int) -> None:
        about = replace(source(rank), node=node, attempt=attempt)
        one = PassthroughMetric(about, semconv.RUN_RESTARTS, ("SIGKILL",), value)
        report(store, one, now_s=NOW_S + attempt)

    restarts(0, "node-0", 1.0, 1)
    restarts(2, "node-1", 1.0, 1)
    restarts(2, "node-0", 2.0, 2)
    (line,) = shown(store)["straggler_run_restarts_total"]
    assert line == (
        'straggler_run_restarts_total{reason="SIGKILL",run_id="run",'
        'job_name="job",group="",node="node-0",collector="c"} 2.0'
    )


@pytest.mark.parametrize(
    "metric",
    [
        *semconv.HARDWARE_METRICS,
        *semconv.GOODPUT_METRICS,
        *semconv.CHECKPOINT_METRICS,
        *semconv.LAUNCH_METRICS,
    ],  # timeouts are of the run's status
    ids=lambda metric: metric.name,
)
def test_every_such_series_is_text_that_prometheus_reads(metric: semconv.Metric) -> None:
    """Also of a host, which has no labels of its own: one wrong line, and the scrape is refused."""
    parser = pytest.importorskip(
        "prometheus_client.parser",
        reason="prometheus-client is not installed: it would show that Prometheus reads the page",
    )
    store = RunStore()
    values = tuple("v" for _ in metric.own_labels)
    report(store, PassthroughMetric(source(), metric, values, 2.5))
    worlds = {"": store.world_of(source()).passthrough}
    page = passthrough_of_run(worlds, RUN)
    page.extend(passthrough_of_ranks(worlds, {}, RUN, 1_000, frozenset()))
    text = page.render().decode()
    assert not {"{,", ",,", ",}"} & {
        text[at : at + 2] for at in range(len(text))
    }  # which this parser lets pass
    [sample] = [
        sample
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric.prometheus_name
    ]
    assert sample.value == 2.5
    assert sample.labels["run_id"] == "run"


def timed_out(seconds: float, attempt: int = 0, reason: str = "heartbeat") -> PassthroughMetric:
    agents = Source(run_id="run", rank=0, node="n", attempt=attempt)
    return PassthroughMetric(agents, semconv.RANK_TIMED_OUT, (reason,), seconds)


def test_the_timeout_that_an_agent_reports_does_not_change_who_the_rank_is() -> None:
    """The longest of several counts; it goes when it is reported no longer."""
    store = RunStore()
    report(store, power(1.0))
    report(store, timed_out(12.0), timed_out(20.0, reason="section"))
    passthrough = store.world("run", "").passthrough
    assert passthrough.numbers[0].source == source()
    assert passthrough.numbers[0].timed_out() == ("section", 20.0)
    passthrough.drop_old(NOW_S + KEPT_S + 1.0)
    assert passthrough.numbers[0].timed_out() is None


def test_a_timeout_of_an_earlier_attempt_is_not_taken() -> None:
    store = RunStore()
    report(store, power(1.0, source(attempt=1)))
    report(store, timed_out(12.0, attempt=0))
    assert store.world("run", "").passthrough.numbers[0].timed_out() is None


def test_what_gpus_used_is_summed_over_their_readings() -> None:
    """By the counter of energy where there is one, else by the power; never over silence."""
    store = RunStore()
    totals = store.world_of(source()).passthrough.gpus
    assert totals.usage() is None

    def of(metric: semconv.Metric, value: float, rank: int) -> PassthroughMetric:
        return PassthroughMetric(source(rank), metric, (f"GPU-{rank}", "gpu"), value)

    for second, energy_j in ((0, 7_200.0), (10, 10_800.0), (20, 0.0), (30, 3_600.0)):
        report(
            store,
            of(semconv.HW_ENERGY, energy_j, 0), of(semconv.HW_POWER, 360.0, 0),
            of(semconv.HW_POWER, 360.0, 1), of(semconv.HW_GPU_UTILIZATION, second / 30, 0),
            now_s=NOW_S + second,
        )  # fmt: skip
    report(store, of(semconv.HW_POWER, 360.0, 1), now_s=NOW_S + 30 + KEPT_S + 1.0)
    usage = totals.usage()
    assert usage is not None
    assert (usage.gpus, usage.power_w) == (2, 720.0)
    assert usage.utilization == pytest.approx(0.5)
    assert usage.energy_wh == pytest.approx(2.0 + 3.0)
