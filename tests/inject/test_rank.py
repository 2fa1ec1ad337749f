"""Faults in real processes: what OTEL_STRAGGLER_INJECT makes of a rank, and its telemetry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_straggler import semconv
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.testing import CapturedRequests, CapturedSpan

PROGRAM = Path(__file__).with_name("a_rank.py")
LONGEST_S = 60.0


@pytest.fixture
def sink() -> Iterator[CapturedRequests]:
    with CapturedRequests() as result:
        yield result


def start(sink: CapturedRequests, plan: str, steps: int, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", **more}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), sink.url, str(steps)],
        env={**environment, "OTEL_STRAGGLER_INJECT": plan} if plan else environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(sink: CapturedRequests, plan: str, steps: int = 60, **more: str) -> tuple[int, str]:
    """Exit code and log of a rank with this plan."""
    with start(sink, plan, steps, **more) as process:
        _, log = process.communicate(timeout=LONGEST_S)
    return process.returncode, log


def faults(sink: CapturedRequests) -> list[CapturedSpan]:
    return [span for span in sink.spans() if span.name == semconv.FAULT_SPAN]


def lengths_s(sink: CapturedRequests, section: str) -> dict[int, float]:
    """By step."""
    return {
        span.attributes[semconv.STEP]: (span.end_ns - span.start_ns) / 1e9
        for span in sink.spans()
        if span.name == section
    }


def test_a_killed_rank_has_sent_the_span_of_its_fault(sink: CapturedRequests):
    """Who, what and in which step, before SIGKILL."""
    code, log = run(sink, "rank_killed@rank1:step20")
    assert code == -signal.SIGKILL
    (span,) = faults(sink)
    assert span.attributes[semconv.FAULT] == "rank_killed@rank1:step20"
    assert span.attributes[semconv.FAULT_KIND] == "rank_killed"
    assert 20 <= span.attributes[semconv.STEP] < 25
    assert span.resource[semconv.RANK] == 1
    assert span.resource[semconv.RUN_ID] == "run"
    assert "fault injection: rank 1 begins rank_killed@rank1:step20" in log


def test_a_hung_rank_is_stopped_and_goes_on_when_its_time_is_up(sink: CapturedRequests):
    """SIGSTOP is undone from outside."""
    code, _ = run(sink, "rank_hung@rank1:step20+0.5s")
    assert code == 0
    longest = max(span.end_ns - span.start_ns for span in sink.spans() if span.name == "step")
    assert longest > 400_000_000
    assert len(faults(sink)) == 1


def test_a_slow_rank_is_slow_between_two_steps(sink: CapturedRequests):
    """Steps 20 to 30, and no others; the span lasts as long as the fault."""
    code, _ = run(sink, "data:0.02@rank1:step20-30")
    assert code == 0
    slow = {step for step, length_s in lengths_s(sink, "data").items() if length_s > 0.02}
    assert len(slow & set(range(20, 31))) > 5
    (span,) = faults(sink)
    assert span.end_ns - span.start_ns > 150_000_000


def test_an_exception_ends_the_rank_as_one_of_its_own(sink: CapturedRequests):
    """With a traceback, and a failed outcome."""
    code, log = run(sink, "exception@rank1:step20")
    assert code == 1
    assert "InjectedError: injected by OTEL_STRAGGLER_INJECT" in log
    assert len(faults(sink)) == 1


@pytest.mark.parametrize(
    ("plan", "restarts"),
    [
        ("rank_killed@rank0:step20 rank_killed@rank1:step20:attempt1", "0"),
        ("rank_killed@rank1:step20", "1"),
    ],
)
def test_other_ranks_and_attempts_have_no_fault(sink: CapturedRequests, plan: str, restarts: str):
    """A restarted rank does not die of the fault that restarted it."""
    code, log = run(sink, plan, steps=40, TORCHELASTIC_RESTART_COUNT=restarts)
    assert code == 0, log
    assert faults(sink) == []
    assert "fault injection" not in log


def test_a_plan_that_is_none_is_an_error_of_configure(sink: CapturedRequests):
    """As any wrong setting is, before training begins."""
    code, log = run(sink, "crash@rank1")
    assert code == 1
    assert "ConfigError: fault: got 'crash@rank1'; expected a fault" in log


def test_what_a_rank_cannot_have_is_a_failed_span_with_the_reason(sink: CapturedRequests):
    """The truth says what was not injected, too; the collector scores no span of a fault."""
    code, _ = run(sink, "xid:79@rank1:step5", steps=20)
    assert code == 0
    (span,) = faults(sink)
    assert span.is_error
    assert "kernel_log=FILE" in span.attributes[semconv.FAULT_REASON]
    (body,) = (request.body for request in sink.requests if b"fault.injection" in request.body)
    decoded = SpanDecoder().decode(body)
    assert len(decoded.batch) == 0
    assert decoded.rejected == {}


def test_a_fault_is_undone_when_its_rank_dies_before(sink: CapturedRequests, tmp_path: Path):
    """A file in /dev/shm stands for what outlives a process."""
    folder = Path("/dev/shm")
    if not folder.is_dir() or folder.stat().st_dev == Path("/").stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own: a dead rank's fault was not tried")
    with start(sink, f"disk_full:1@rank1:0s+50s folder={folder}", 100_000) as rank:
        file = folder / f"otel-straggler-disk-full-{rank.pid}"
        _wait(file.exists)
        rank.kill()
    _wait(lambda: not file.exists())


def test_without_a_plan_nothing_of_it_is_loaded():
    """Nor anything else than before."""
    code = (
        "import sys, otel_straggler; otel_straggler.configure(endpoint='http://127.0.0.1:9', "
        "run_id='r', exit_deadline_s=0.1)\n"
        "print([name for name in sys.modules if '.inject' in name])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LONGEST_S
    )
    assert answer.stdout.strip() == "[]"


def _wait(claim: object) -> None:
    ends_s = time.monotonic() + LONGEST_S
    while not claim():  # type: ignore[operator]
        assert time.monotonic() < ends_s
        time.sleep(0.01)
