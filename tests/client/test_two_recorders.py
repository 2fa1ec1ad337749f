"""The native recorder and the fallback in Python record the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.client.python_packing import SpanPacker
from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import Context, RecordingSession
from otel_straggler.client.recording import FORM
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.native import REASON, VARIABLE

SCRIPT = Path(__file__).with_name("recorders.py")
needs_extension = pytest.mark.skipif(
    FORM == "python",
    reason=f"{REASON}: it would show that the native recorder records the same as this one",
)
NAMES = st.sampled_from(["a", "b", "forward"])
LEAVES = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.sampled_from([("end",), ("finish",)]),
    # Shorter than what runs meanwhile, so that none is cut to that.
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 5, -1, 2**47, 2**70])),
    st.tuples(st.sampled_from(["open", "close", "begin"]), NAMES),
    st.tuples(st.just("sized"), NAMES, st.none() | st.integers(0, 9), st.none() | st.integers(0)),
)
ACTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["section", "fail"]), NAMES, st.lists(inner, max_size=4)),
        st.tuples(st.just("phase"), st.sampled_from(["eval", "warm-up"]), st.lists(inner)),
        st.tuples(st.just("thread"), st.lists(inner, max_size=4)),
    ),
    max_leaves=20,
)
PROGRAMS = st.lists(ACTS, max_size=8)


class Process:
    """A process that runs programs with the recorder that is wished for."""

    def __init__(self, requested: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={**os.environ, VARIABLE: requested},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.form = self._line().strip()

    def recorded(self, program: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Process, Process]]:
    native, python = Process("required"), Process("off")
    assert (native.form, python.form) == ("native", "python")
    yield native, python
    native.close()
    python.close()


@needs_extension
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(program=PROGRAMS)
def test_random_programs_give_the_same_records(both: tuple[Process, Process], program: Any) -> None:
    """Nesting, steps, phases, exceptions, threads, sizes, sections opened and closed by hand and
    those of coroutines."""
    native, python = both
    assert native.recorded(program) == python.recorded(program)


@needs_extension
@pytest.mark.parametrize(
    "program",
    [
        [
            ["section", "a", [["off"], ["section", "b", [["on"], ["section", "a", []]]]]],
            ["section", "b", [["step", 1]]],
        ],
        [["open", "a"], ["on"], ["step", 2], ["close", "a"], ["end"]],
        [["begin", "a"], ["off"], ["finish"], ["on"], ["begin", "b"], ["finish"]],
    ],
)
def test_what_is_open_when_recording_begins_anew_is_the_same(
    both: tuple[Process, Process], program: Any
) -> None:
    """It keeps the session in which it began."""
    native, python = both
    result = native.recorded(program)
    assert result == python.recorded(program)
    assert result


@needs_extension
def test_the_tests_of_recording_pass_with_the_other_recorder() -> None:
    """As they stand."""
    files = ("test_recorder.py", "test_recording.py", "test_nested_sections.py", "test_doses.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(str(SCRIPT.with_name(name)) for name in files)],
        env={**os.environ, VARIABLE: "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def left_out_steps(rank: int, sections: int) -> set[int]:
    """Steps that a rank with 100 spans a second to spend does not send, of 40 in 4 s."""
    nowhere = Endpoint(url="http://127.0.0.1:1", is_enabled=False)
    settings = ClientSettings(
        run_id="r", rank=rank, traces=nowhere, metrics=nowhere, span_budget=100
    )
    packer = SpanPacker(settings, lambda _: {}, 1)
    timer, session, records = PythonTimer("forward", "compute"), RecordingSession("0" * 16, 1), []
    for step in range(40):
        context = Context(session, step, 10**6 + step, "")
        for n in range(sections):
            at_ns = 10**15 + step * 10**8 + n
            records.append(((timer, step * 1000 + n, at_ns, context, None), None, at_ns, None, 0))
    spans = [span for request in packer.pack(records, 0) for span in decoded_spans(request.body)]
    sent = [next(a.value.int_value for a in s.attributes if a.key == semconv.STEP) for s in spans]
    assert packer.losses() == ({"span_budget": len(records) - len(spans)} if sections > 10 else {})
    assert sections <= 10 or 100 <= len(spans) <= 800
    assert {sent.count(step) for step in set(sent)} == {sections} or sections > 10
    return {step for step in range(40) if sent.count(step) < sections}


def decoded_spans(body: bytes) -> list[Any]:
    message = ExportTraceServiceRequest.FromString(body)
    return list(message.resource_spans[0].scope_spans[0].spans)


def test_above_its_budget_the_fallback_leaves_out_whole_steps_and_counts_them() -> None:
    """The same steps on all ranks: those of a rank with more are among those of one with less."""
    assert left_out_steps(0, 10) == set()
    few, many = left_out_steps(1, 30), left_out_steps(2, 60)
    assert set() < few < many


def test_the_fallback_propagates_no_context_and_says_so() -> None:
    """Spans of user code are then as without us."""
    program = (
        "import logging; logging.basicConfig()\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "import otel_straggler as o\n"
        "o.configure(tracer_provider=TracerProvider(), propagate_context=True)\n"
        "with o.step(1), o.section('a'): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, VARIABLE: "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "propagate_context has no effect: it needs the native part" in done.stderr
