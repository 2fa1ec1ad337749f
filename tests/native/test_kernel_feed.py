"""From a kernel on the (fake) GPU to what is told of it."""

from __future__ import annotations

import time
from statistics import median

import pytest

from otel_straggler.client.kernels import KernelFeed
from otel_straggler.model.kernels import times_of_counts
from otel_straggler.model.rank import Source
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import encode_kernel_times
from otel_straggler.report.statistics import kernel_summaries
from otel_straggler.report.types import Statistic

from .fake_cupti import FakeGpu, build

pytestmark = pytest.mark.skipif(
    NATIVE is None,
    reason="the extension was not built: it would show that timed kernels arrive as they ran",
)


def test_what_a_gpu_ran_is_what_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every kernel, in its section: exactly in count and time, to 0.3 % in the median. Over the
    wire, and as statistics of a report."""
    assert NATIVE is not None
    gpu = FakeGpu(build(tmp_path_factory.mktemp("cupti")))
    timer = NATIVE.KernelTimer(gpu.path, "", gpu.path, False, False, False)
    assert timer.start() == ""
    feed = KernelFeed(lambda: timer, lambda number: {1: "forward", 2: "backward"}.get(number, ""))
    one, other = feed.share(), feed.share()
    launched: dict[tuple[str, str], list[int]] = {}
    for number in range(300):
        section = 1 + number % 2
        timer.boundary(True, number + 1, section)
        for name, length_ns in (("gemm", 10_000 + 37 * number), ("_Z4axpyPfi", 900 + number)):
            gpu.launch(name, length_ns)
            key = (
                name.replace("_Z4axpyPfi", "axpy(float*, int)"),
                ("forward", "backward")[section - 1],
            )
            launched.setdefault(key, []).append(length_ns)
    timer.boundary(True, 0, 0)
    timer.flush()
    timer.flush()
    counted = one.take()
    timer.stop(time.monotonic_ns())
    assert {(k.cell.kernel.name, k.cell.section): k.sum_ns for k in counted} == {
        key: sum(times) for key, times in launched.items()
    }
    body = encode_kernel_times(counted, resource={"rank": 1}, start_ns=1, end_ns=2)
    result = MetricDecoder().decode(body).kernel_times
    assert result is not None
    assert result.count.tolist() == [150] * 4
    here = times_of_counts(counted, Source(run_id="", rank=1), 1, 2)
    assert result.runs.tolist() == here.runs.tolist()
    reported = kernel_summaries(other.take())
    for name in ("gemm", "axpy(float*, int)"):
        runs = [t for (kernel, _), times in launched.items() if kernel == name for t in times]
        assert reported[name][Statistic.MED] == pytest.approx(median(runs) / 1e3, rel=0.003)
        assert reported[name][Statistic.NUM] == 300
        assert reported[name][Statistic.MAX] == pytest.approx(max(runs) / 1e3)
