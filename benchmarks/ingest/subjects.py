"""Starts a receiver, sends it a dose, and reads what that has cost."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.harness.processes import cpu_ns, family_of, serving
from benchmarks.ingest import rotel
from benchmarks.ingest.cases import OURS, ROTEL, UPB_PARSE, Case
from benchmarks.ingest.senders import send

FREE = "127.0.0.1:0"
IDLE_S = 0.5
"""Longer than the collector's tick, and than Rotel holds a batch back."""
POLL_S, BUSY_SHARE = 0.1, 0.1
_WAITING = ("straggler_collector_queue_bytes{", "straggler_collector_forward_queue_bytes{")


@dataclass(frozen=True)
class Figures:
    """Of one run of a case.

    Attributes:
        cpu_us_per_span: user and system time of all its processes.
        spans_per_s: from the first request until the last work that it has caused (small
            receivers: until all is answered); the senders share the machine.
    """

    cpu_us_per_span: float
    spans_per_s: float


@dataclass(frozen=True)
class _Running:
    """A receiver: where it listens, by protocol; its process; how to wait until it has done all
    that was sent, which shows when that was (monotonic, seconds)."""

    addresses: dict[str, str]
    pid: int
    wait: Callable[[], float]


def measure(case: Case, part: float) -> Figures:
    """Run one case with a part of the usual dose.

    A small run is sent first and not counted: a collector runs for days, and what it loads and
    learns once (modules, the shapes of spans) is no cost of a span.
    """
    dose = case.dose(part)
    bodies = dose.zipped if case.is_zipped and case.protocol == "http" else dose.bodies
    with _started(case) as receiver:
        to = receiver.addresses[case.protocol]
        zips_itself = case.is_zipped and case.protocol == "grpc"
        send(case.protocol, to, dose.warm_up, is_zipped=zips_itself)
        receiver.wait()
        pids = family_of(receiver.pid)
        before, began_s = [cpu_ns(pid) for pid in pids], time.monotonic()
        send(case.protocol, to, bodies, is_zipped=case.is_zipped)
        took_s = receiver.wait() - began_s
        used = [cpu_ns(pid) - then for pid, then in zip(pids, before, strict=True)]
    return Figures(sum(used) / dose.spans / 1e3, dose.spans / took_s)


@contextlib.contextmanager
def _started(case: Case) -> Iterator[_Running]:
    with contextlib.ExitStack() as stack:
        sink = None
        if case.stage.startswith("forward"):
            sink, _ = stack.enter_context(serving(_small_receiver("discard", "http")))
        if case.subject == OURS:
            yield stack.enter_context(_collector(case, sink))
        elif case.subject == ROTEL:
            yield stack.enter_context(_rotel(sink))
        else:
            what = "parse" if case.subject == UPB_PARSE else "read"
            command = _small_receiver(what, case.protocol)
            address, pid = stack.enter_context(serving(command))
            yield _Running({case.protocol: address}, pid, time.monotonic)  # an answer is all


def _small_receiver(what: str, protocol: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.ingest.receivers", what, protocol]


@contextlib.contextmanager
def _collector(case: Case, sink: str | None) -> Iterator[_Running]:
    command = [sys.executable, "-m", "otel_straggler.cli", "collector"]
    if case.stage == "receive":
        command = [sys.executable, "-m", "benchmarks.ingest.receive_only"]
    command += ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE]
    if sink is not None:
        mode = "sampled" if case.stage == "forward sampled" else "all"
        command += ["--forward", f"http://{sink}", "--forward-mode", mode]
    with serving(command) as (line, pid):
        reported = json.loads(line)
        addresses = {"http": reported["otlp_http"], "grpc": reported["otlp_grpc"]}

        def wait() -> float:
            _until_nothing_waits(reported["metrics"])
            return _until_idle(pid)

        yield _Running(addresses, pid, wait)


@contextlib.contextmanager
def _rotel(sink: str | None) -> Iterator[_Running]:
    program = rotel.find()
    assert program is not None
    with rotel.serving(program, sink) as (addresses, pid):
        yield _Running(addresses, pid, lambda: _until_idle(pid))


def _until_nothing_waits(metrics: str) -> None:
    """To be scored or sent; the last window, and its spans, may stay open."""
    while True:
        with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        waiting = [float(x.rpartition(" ")[2]) for x in lines if x.startswith(_WAITING)]
        if waiting and not any(waiting):
            return
        time.sleep(0.05)


def _until_idle(pid: int) -> float:
    """When it worked last; windows and verdicts that are due, and batches that a peer holds back,
    come some time after the last answer."""
    worked_s, used_ns = time.monotonic(), cpu_ns(pid)
    while time.monotonic() - worked_s < IDLE_S:
        time.sleep(POLL_S)
        now_ns = cpu_ns(pid)
        if now_ns - used_ns > BUSY_SHARE * POLL_S * 1e9:
            worked_s = time.monotonic()
        used_ns = now_ns
    return worked_s
