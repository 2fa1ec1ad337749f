"""A library that never lets go of the GIL: the rank still says that it lives, and where it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_straggler import semconv
from otel_straggler.client.recording import FORM
from otel_straggler.testing import CapturedPoint, CapturedRequest, CapturedRequests

PROGRAM = Path(__file__).with_name("gil_program.py")
HOLD_S = 3.0

pytestmark = pytest.mark.skipif(
    FORM == "python", reason="without the extension, nothing is sent while the GIL is held"
)


def test_heartbeats_and_spans_go_out_while_a_library_holds_the_gil(sink: CapturedRequests) -> None:
    """With the section in which it hangs, and what ended just before."""
    began_s, ended_s = run_program(sink)
    during = [p for p in sink.points(semconv.HEARTBEAT) if began_s < p.value < ended_s - 0.5]
    assert len(during) >= 4
    open_now = [p for p in sink.points(semconv.SECTION_OPEN) if "all_reduce" in section_of(p)]
    assert max(p.value for p in open_now) > HOLD_S / 2
    assert {p.resource[semconv.RUN_ID] for p in during} == {"held"}
    before_end = {span.name for span in sink.spans() if span.end_ns / 1e9 < began_s}
    assert {"step", "forward", "just before"} <= before_end
    assert first_request_with("just before", sink) < index_of_last_heartbeat(during[-1], sink)


def section_of(point: CapturedPoint) -> str:
    return str(point.attributes[semconv.SECTION])


def run_program(sink: CapturedRequests) -> tuple[float, float]:
    child = subprocess.run(
        [sys.executable, PROGRAM, str(HOLD_S)],
        env={**os.environ, "OTEL_STRAGGLER_ENDPOINT": sink.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    began, ended = child.stdout.split()
    return float(began), float(ended)


def first_request_with(name: str, sink: CapturedRequests) -> int:
    """Its place among all requests, in the order of their arrival."""
    bodies = [name.encode() in request.body for request in sink.requests]
    return bodies.index(True)


def index_of_last_heartbeat(point: CapturedPoint, sink: CapturedRequests) -> int:
    """The place of the request that brought this heartbeat."""
    for at, request in enumerate(sink.requests):
        if request.path.endswith("metrics") and point.value in times_of(request):
            return at
    raise AssertionError(point)


def times_of(request: CapturedRequest) -> set[float]:
    """When the heartbeats in a request were sent, in Unix seconds."""
    [of_resource] = request.decode().resource_metrics
    return {
        point.as_double
        for metric in of_resource.scope_metrics[0].metrics
        if metric.name == semconv.HEARTBEAT.name
        for point in metric.gauge.data_points
    }
