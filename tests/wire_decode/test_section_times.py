"""Histograms of section times: what they add, and the rows that stand for their runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, SectionTimes
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_histograms
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.section_rows import (
    MAX_ROWS,
    HistogramDeltas,
    NewestPoints,
    rows_of,
    run_times_s,
)

SECOND = 10**9
WHO = Source(run_id="run", rank=3, session_id="s")
BOUNDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

many_times = st.lists(
    st.floats(1e-4, 2.4, allow_nan=False, exclude_min=True), min_size=1, max_size=40
)
repeats = st.sampled_from([1, 2, 3, 30, 101])


def explicit(times_s: list[float], bounds: tuple[float, ...] = BOUNDS) -> Buckets:
    counts = np.bincount(np.searchsorted(bounds, times_s), minlength=len(bounds) + 1)
    return Buckets(counts=counts.astype(np.int64), bounds=bounds, sum=math.fsum(times_s))


def exponential(times_s: list[float], scale: int) -> Buckets:
    index = [math.ceil(math.log2(t) * 2**scale) - 1 for t in times_s]
    first = min(index)
    counts = np.bincount(np.array(index) - first).astype(np.int64)
    return Buckets(counts=counts, scale=scale, first=first, sum=math.fsum(times_s))


def point(
    buckets: Buckets,
    start_s: float = 0,
    end_s: float = 60,
    *,
    is_cumulative: bool = False,
    **more: Any,
) -> SectionTimes:
    return SectionTimes(
        source=WHO,
        section=Section("forward"),
        start_ns=int(start_s * SECOND),
        end_ns=int(end_s * SECOND),
        is_cumulative=is_cumulative,
        buckets=buckets,
        **more,
    )


def width_at(buckets: Buckets, time_s: float) -> float:
    """The width of the bucket that holds a time."""
    lower, upper, _ = buckets.edges()
    widths = [u - lo for lo, u in zip(lower, upper, strict=True) if lo < time_s <= u]
    return float(widths[0])


# --- rows ----------------------------------------------------------------------------------------


@given(many_times, repeats)
def test_the_median_of_rows_is_off_by_a_bucket_at_most(times_s: list[float], again: int) -> None:
    """For few runs and many, for an even number and an odd one, whatever their distribution."""
    times_s = times_s * again
    buckets = explicit(times_s)
    ordered = sorted(times_s)
    middle = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    widest = max(width_at(buckets, t) for t in middle)
    rows = run_times_s(point(buckets))
    assert len(rows) == min(len(times_s), MAX_ROWS)
    assert abs(np.median(rows) - np.median(times_s)) <= widest * (1 + 1e-9)


@given(many_times, repeats, st.integers(7, 20))
def test_the_median_of_fine_exponential_buckets_is_off_by_half_a_per_cent_at_most(
    times_s: list[float], again: int, scale: int
) -> None:
    """Which is what the wire contract promises for kernels."""
    times_s = times_s * again
    rows = run_times_s(point(exponential(times_s, scale)))
    assert np.median(rows) == pytest.approx(np.median(times_s), rel=0.005)


def test_the_median_of_two_heaps_lies_in_the_larger_one() -> None:
    """By one run in a thousand: what stands for the runs must not move the middle."""
    rows = run_times_s(point(explicit([0.002] * 500 + [2.0] * 501)))
    assert 1.0 < np.median(rows) <= 2.5


def test_the_worst_case_of_half_a_per_cent_is_kept() -> None:
    """All times at the lower edge of their bucket, and the one in the middle the last in it."""
    at, far = 2 ** (3 / 128) * (1 + 1e-12), 2 ** (500 / 128)
    times_s = [at] * 101 + [far] * 100
    rows = run_times_s(point(exponential(times_s, 7)))
    assert np.median(rows) == pytest.approx(at, rel=0.005)
    assert np.median(rows) > at * 1.004


@given(many_times, repeats)
def test_rows_have_the_sum_that_was_measured(times_s: list[float], again: int) -> None:
    """And every row lies in its bucket."""
    times_s = (times_s * again)[:MAX_ROWS]
    buckets = explicit(times_s)
    rows = run_times_s(point(buckets))
    assert rows.sum() == pytest.approx(math.fsum(times_s))
    inside = np.bincount(np.searchsorted(BOUNDS, rows - 1e-12), minlength=len(BOUNDS) + 1)
    assert np.abs(np.cumsum(inside) - np.cumsum(buckets.counts)).max() == 0


@pytest.mark.parametrize("runs", range(1, 40))
def test_times_that_are_all_a_bound_keep_their_sum(runs: int) -> None:
    """Sums of decimal fractions are never exact; rounding must not make the told sum impossible."""
    for bound in BOUNDS:
        rows = run_times_s(point(explicit([bound] * runs)))
        assert rows.sum() == pytest.approx(bound * runs)


def test_times_on_either_side_of_a_bound_are_as_close_as_they_are() -> None:
    """0.09 s and 0.11 s are no straggler, though their buckets are (0.05, 0.1] and (0.1, 0.25]."""
    fast, slow = (np.median(run_times_s(point(explicit([t] * 40)))) for t in (0.09, 0.11))
    assert (fast, slow) == (pytest.approx(0.09), pytest.approx(0.11))


def test_minimum_and_maximum_narrow_the_outer_buckets() -> None:
    """The default bounds of the SDKs begin at 0 and 5 s: all times fall into one bucket."""
    buckets = replace(explicit([0.2, 0.3], bounds=(0.0, 5.0)), sum=None)
    assert run_times_s(point(buckets, min_s=0.2, max_s=0.3)).tolist() == [
        pytest.approx(0.225),
        pytest.approx(0.275),
    ]
    above = replace(explicit([7.0, 8.0], bounds=(0.0, 5.0)), sum=None)
    assert run_times_s(point(above, max_s=9.0)).max() <= 9.0
    assert run_times_s(point(above)).tolist() == [5.0, 5.0]
    assert run_times_s(point(replace(above, sum=15.0))).max() <= 7.5


def test_times_of_zero_become_the_shortest_there_is() -> None:
    """A row must last."""
    none = Buckets(counts=np.array([], np.int64), scale=3, zero=4, zero_bound=0.0)
    assert run_times_s(point(none)).tolist() == [1e-9] * 4


def test_rows_begin_within_the_interval_long_and_short_ones_alike() -> None:
    """Each half of the interval has the median of the whole."""
    times_s = np.linspace(0.01, 0.04, 200).tolist()
    batch = rows_of([point(exponential(times_s, 10), 60, 120)], MAX_ROWS)
    assert 60 * SECOND <= batch.start_ns.min() <= batch.start_ns.max() <= 120 * SECOND
    for half in (batch.start_ns < 90 * SECOND, batch.start_ns >= 90 * SECOND):
        assert np.median(batch.duration_s[half]) == pytest.approx(np.median(times_s), rel=0.02)


# --- what a point adds ---------------------------------------------------------------------------


@given(many_times, many_times, st.integers(-2, 12), st.integers(0, 4))
def test_a_cumulative_point_adds_what_came_since_the_one_before(
    before: list[float], since: list[float], scale: int, coarser: int
) -> None:
    """Also where the buckets became coarser meanwhile, as they do when the range grows."""
    series = Series()
    series.observe(point(exponential(before, scale), 1, 60, is_cumulative=True))
    later = exponential(before + since, scale - coarser)
    added = series.observe(point(later, 1, 120, is_cumulative=True))
    assert added is not None
    assert (added.start_ns, added.end_ns) == (60 * SECOND, 120 * SECOND)
    fresh = exponential(since, scale - coarser)
    for got, wanted in zip(added.buckets.edges(), fresh.edges(), strict=True):
        assert got.tolist() == wanted.tolist()
    assert added.buckets.sum == pytest.approx(math.fsum(since))


def cumulative(runs: int, start_s: float, end_s: float) -> SectionTimes:
    return point(explicit([0.2] * runs), start_s, end_s, is_cumulative=True)


class Series:
    """Of one world."""

    def __init__(self, fresh_s: float = math.inf) -> None:
        self.deltas = HistogramDeltas(fresh_s)
        self.newest: NewestPoints = {}

    def observe(self, times: SectionTimes) -> SectionTimes | None:
        return self.deltas.observe(times, self.newest)


def adds(series: Series, times: SectionTimes) -> int:
    added = series.observe(times)
    return 0 if added is None else len(added.buckets)


def test_a_later_start_is_a_reset_and_repeated_and_late_points_add_nothing() -> None:
    """OTLP may deliver twice and out of order."""
    series = Series()
    reported = [
        (5, 1, 60),
        (8, 1, 120),
        (8, 1, 120),
        (5, 1, 60),
        (3, 130, 150),
        (9, 1, 140),
        (7, 130, 180),
    ]
    assert [adds(series, cumulative(*one)) for one in reported] == [5, 3, 0, 0, 3, 0, 4]
    assert series.deltas.counts == {"added": 4, "repeated": 3}


def test_history_is_only_a_baseline() -> None:
    """A collector that starts late does not score hours at once."""
    series = Series(fresh_s=300.0)
    assert adds(series, cumulative(1000, 1, 7200)) == 0
    assert adds(series, cumulative(1004, 1, 7260)) == 4
    assert series.deltas.counts == {"baseline": 1, "added": 1}


def test_counts_that_shrink_or_other_bounds_are_a_new_baseline() -> None:
    """The sender made a mistake or was changed; nothing can be said of the interval."""
    series = Series()
    assert adds(series, cumulative(9, 1, 60)) == 9
    assert adds(series, cumulative(5, 1, 120)) == 0
    assert adds(series, cumulative(7, 1, 180)) == 2
    other = point(explicit([0.2] * 9, (0.1, 0.3)), 1, 240, is_cumulative=True)
    assert adds(series, other) == 0
    assert series.deltas.counts["baseline"] == 2


def test_every_delta_adds_itself_once() -> None:
    """Also without a start, which is optional there."""
    series = Series(fresh_s=1.0)
    reported = [point(explicit([0.1] * n), start, end) for n, start, end in
            [(3, 0, 60), (4, 60, 120), (4, 60, 120), (2, 0, 180), (1, 20, 50)]]  # fmt: skip
    assert [adds(series, one) for one in reported] == [3, 4, 0, 2, 0]


def test_processes_sections_and_runs_are_kept_apart_and_evicted() -> None:
    """A restarted rank has a new session; a run that is evicted begins again."""
    series = Series()
    first = cumulative(5, 1, 60)
    others = [
        replace(first, source=replace(WHO, session_id="t")),
        replace(first, source=replace(WHO, rank=4)),
        replace(first, section=Section("backward")),
    ]
    assert [adds(series, one) for one in (first, *others)] == [5, 5, 5, 5]
    series.newest.clear()
    assert adds(series, first) == 5


# --- decoding ------------------------------------------------------------------------------------


def request(**changes: Any) -> ExportMetricsServiceRequest:
    """One cumulative histogram of rank 3 as our client sends it."""
    histogram = SectionHistogram(
        section="forward", kind="wait", bounds_s=[0.1, 0.2], counts=[1, 2, 3], sum_s=1.2
    )
    resource = {"training.rank": 3, "training.run.id": "run"}
    body = encode_histograms([histogram], resource=resource, started_at_s=1.0, now_s=61.0)
    message = ExportMetricsServiceRequest.FromString(body)
    one = point_of(message)
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(one, name)[:]
            getattr(one, name).extend(value)
        else:
            setattr(one, name, value)
    return message


def metric_of(message: ExportMetricsServiceRequest) -> Any:
    return message.resource_metrics[0].scope_metrics[0].metrics[0]


def point_of(message: ExportMetricsServiceRequest) -> Any:
    return metric_of(message).histogram.data_points[0]


def decode(message: ExportMetricsServiceRequest) -> DecodedMetrics:
    """Decoded with the native part, where there is one, and without: the same."""
    body = message.SerializeToString()
    decoded, plain = MetricDecoder().decode(body), MetricDecoder(extension=None).decode(body)
    assert repr(decoded) == repr(plain)
    return decoded


def test_a_histogram_of_our_client_is_read() -> None:
    """Whose, which section, which interval, which buckets."""
    [times] = decode(request()).section_times
    assert (times.source.rank, times.source.run_id) == (3, "run")
    assert times.section == Section("forward", "wait")
    assert (times.start_ns, times.end_ns, times.is_cumulative) == (SECOND, 61 * SECOND, True)
    assert times.buckets.bounds == (0.1, 0.2)
    assert (times.buckets.counts.tolist(), times.buckets.sum) == ([1, 2, 3], 1.2)


def test_milliseconds_are_no_seconds() -> None:
    """The unit of the metric counts."""
    message = request()
    metric_of(message).unit = "ms"
    [times] = decode(message).section_times
    assert times.buckets.edges()[1].tolist()[:2] == pytest.approx([0.0001, 0.0002])
    assert times.buckets.sum_s == pytest.approx(0.0012)


def test_an_interval_may_be_without_length() -> None:
    """The first point of a series, of some senders."""
    [times] = decode(request(start_time_unix_nano=61 * SECOND)).section_times
    assert times.start_ns == times.end_ns


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 7},
        {"bucket_counts": [1, 2]},
        {"explicit_bounds": [0.2, 0.1]},
        {"explicit_bounds": [0.1, math.nan]},
        {"explicit_bounds": [0.1, 0.1]},
        {"time_unix_nano": 0},
        {"time_unix_nano": 2**63},
        {"start_time_unix_nano": 62 * SECOND},
        {"flags": 1},
        {"bucket_counts": [2**63, 2, 3], "count": 2**63 + 5},
    ],
)
def test_a_point_that_makes_no_sense_is_rejected(changes: dict[str, Any]) -> None:
    """And counted; nothing of it is scored."""
    decoded = decode(request(**changes))
    assert decoded.section_times == ()
    assert decoded.rejected == {"malformed": 1}


@pytest.mark.parametrize(
    "wrong", ["no section", "unit", "temporality", "scale", "huge", "negative"]
)
def test_a_metric_that_makes_no_sense_is_rejected(wrong: str) -> None:
    """The same for what stands around the point."""
    message = request()
    metric = metric_of(message)
    if wrong == "no section":
        del point_of(message).attributes[:]
    elif wrong == "unit":
        metric.unit = "By"
    elif wrong == "temporality":
        metric.histogram.aggregation_temporality = 0
    else:
        one = metric.exponential_histogram.data_points.add(time_unix_nano=SECOND, count=1)
        metric.exponential_histogram.aggregation_temporality = 1
        one.attributes.add(key="straggler.section").value.string_value = "forward"
        one.scale = {"scale": 30, "huge": 0, "negative": 2}[wrong]
        buckets = one.negative if wrong == "negative" else one.positive
        buckets.offset = 2**30 if wrong == "huge" else 0
        buckets.bucket_counts.append(1)
    assert decode(message).rejected == {"malformed": 1}


def test_who_sent_may_be_said_on_the_point() -> None:
    """One process may report for several ranks; each gets its own heartbeat and times."""
    message = request()
    del message.resource_metrics[0].resource.attributes[:]
    metric = metric_of(message)
    again = metric.histogram.data_points.add()
    again.CopyFrom(point_of(message))
    for rank, one in enumerate(metric.histogram.data_points):
        one.attributes.add(key="rank").value.string_value = str(rank)
    beat = (
        message.resource_metrics[0]
        .scope_metrics[0]
        .metrics.add(name="straggler.heartbeat.timestamp")
    )
    for rank in (0, 1):
        one = beat.gauge.data_points.add(as_double=10.0 + rank)
        one.attributes.add(key="rank").value.int_value = rank
    beat.gauge.data_points.add(as_double=1.0)
    beat.gauge.data_points.add(as_double=1.0).attributes.add(key="rank").value.int_value = -4
    decoded = decode(message)
    assert [times.source.rank for times in decoded.section_times] == [0, 1]
    assert [(b.source.rank, b.sent_at_s) for b in decoded.heartbeats] == [(0, 10.0), (1, 11.0)]
    assert decoded.points == {
        "used": 2, "section_times": 2, "unknown": 0, "no_rank": 1, "bad_rank": 1, "malformed": 0,
            "kernel_times": 0, "not_delta": 0, "resource_too_large": 0,
    }  # fmt: skip


@given(st.data())
def test_a_mutated_metrics_request_is_decoded_or_malformed(data: st.DataObject) -> None:
    """And whatever is decoded gives rows that last."""
    from otel_straggler.errors import InputError

    body = bytearray(request().SerializeToString())
    for _ in range(data.draw(st.integers(1, 6))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = MetricDecoder().decode(bytes(body))
    except InputError:
        return
    for times in decoded.section_times:
        rows = run_times_s(times)
        assert len(rows) == min(len(times.buckets), MAX_ROWS)
        assert (rows > 0).all()
        assert np.isfinite(rows).all()
