"""The application's provider at the ends of a process: it is flushed, never shut down."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from otel_straggler import flush, section, shutdown, step
from otel_straggler.client import sdk_feed
from otel_straggler.client.sender import SDK_QUEUE_FULL
from otel_straggler.testing import CapturedRequests

from .conftest import Application, MakeApplication

HEAD = """
import os, signal, sys, threading, time
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import *
import otel_straggler as o
def show(span):
    return span.name + "\\n"
provider = TracerProvider()
provider.add_span_processor(
    BatchSpanProcessor(ConsoleSpanExporter(formatter=show), schedule_delay_millis=3_600_000)
)
tracer = provider.get_tracer("own")
def work():
    with o.step(1), o.section("a"), tracer.start_as_current_span("user"):
        pass
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Standard error but for the line at the start."""
    return [
        line for line in done.stderr.splitlines() if not line.startswith("otel-straggler: run ")
    ]


@pytest.mark.parametrize("propagate_context", [False, True])
def test_sigterm_delivers_what_is_recorded_through_the_application(
    propagate_context: bool,
) -> None:
    """Without a handler the SDK loses its queue; with us the last step arrives."""
    done = run(f"""
        o.configure(tracer_provider=provider, propagate_context={propagate_context}, flush_s=3600)
        work()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """)
    assert (done.returncode, complaints(done)) == (-signal.SIGTERM, [])
    assert sorted(done.stdout.split()) == ["a", "step", "user"]


def test_a_program_that_just_ends_loses_nothing() -> None:
    """Our part comes before the provider's own exit hook."""
    done = run("o.configure(tracer_provider=provider, flush_s=3600)\nwork()")
    assert (done.returncode, complaints(done)) == (0, [])
    assert sorted(done.stdout.split()) == ["a", "step", "user"]


def test_the_provider_goes_on_after_our_shutdown(application: Application) -> None:
    """It is the application's."""
    application.configure()
    with section("a"):
        pass
    shutdown("ok")
    with application.tracer.start_as_current_span("own"):
        pass
    assert [span.name for span in application.spans()] == ["a", "own"]


def test_a_provider_that_is_shut_down_first_does_no_harm() -> None:
    """Nothing raises, nothing hangs; what comes later is lost, as it is for the application."""
    done = run("""
        o.configure(tracer_provider=provider)
        work()
        o.flush()
        provider.shutdown()
        began = time.monotonic()
        work()
        o.flush()
        o.shutdown("ok")
        assert time.monotonic() - began < 10
    """)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(done.stdout.split()) == ["a", "step", "user"]


def test_a_forked_child_sends_nothing_and_traces_on_its_own() -> None:
    """A DataLoader's worker: no section of the parent's is its current span, no thread of ours."""
    done = run("""
        from opentelemetry import trace
        o.configure(tracer_provider=provider, propagate_context=True)
        with o.step(1), o.section("outer"), o.section("inner"):
            assert trace.get_current_span().get_span_context().is_valid
            child = os.fork()
            if child == 0:
                assert not trace.get_current_span().get_span_context().is_valid
                with o.section("in child"):
                    assert not trace.get_current_span().get_span_context().is_valid
                names = [thread.name for thread in threading.enumerate()]
                assert not any("otel-straggler" in name for name in names), names
                o.shutdown()
                sys.stdout.flush()
                os._exit(7)
            assert os.waitpid(child, 0)[1] == 7 << 8
        assert not trace.get_current_span().get_span_context().is_valid
        o.shutdown("ok")
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["inner", "outer", "step"]


class Hangs(SpanProcessor):
    """An exporter whose backend never answers."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.released = threading.Event()

    def on_end(self, span: ReadableSpan) -> None:
        self.hangs.set()
        self.released.wait(30)


def test_a_processor_that_hangs_holds_up_neither_training_nor_heartbeats(
    make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """The application's code runs in a thread of its own; our own export goes on."""
    processor = Hangs()
    application = make_application(None, processor)
    application.configure(endpoint=sink.url, heartbeat_s=0.02, flush_s=0.02)
    with step(1), section("a"):
        pass
    before = len(sink.points())
    sink.wait_for(lambda s: len(s.points()) > before + 20)
    sink.wait_for(lambda s: len(s.spans()) == 2)
    assert not flush(0.1)
    processor.released.set()
    assert flush()
    assert len(application.spans()) == 2


def test_records_that_wait_for_a_hung_processor_are_bounded_and_counted(
    make_application: MakeApplication, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow; the collector still gets everything."""
    monkeypatch.setattr(sdk_feed, "RING_CAPACITY", 10)
    processor = Hangs()
    application = make_application(None, processor)
    application.configure(endpoint=sink.url, heartbeat_s=0.02, flush_s=0.02)
    with section("a"):
        pass
    assert processor.hangs.wait(20)
    for n in range(30):
        with section("a"):
            pass
        sink.wait_for(lambda s, n=n: len(s.spans()) == n + 2)
    sink.wait_for(lambda s: lost(s) == 20)
    processor.released.set()
    assert flush()
    assert len(application.spans()) == 11


def lost(sink: CapturedRequests) -> float:
    counted = [p.value for p in sink.points() if p.attributes.get("reason") == SDK_QUEUE_FULL]
    return counted[-1] if counted else 0.0
