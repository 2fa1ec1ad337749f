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
from benchmarks.ingest.senders import CONNECTIONS, send

FREE = "127.0.0.1:0"
_WAITING = ("straggler_collector_queue_bytes{", "straggler_collector_forward_queue_bytes{")


@dataclass(frozen=True)
class Figures:
    """Of one run of a case.

    Attributes:
        cpu_us_per_span: user and system time of all its processes.
        main_us_per_span: of its first process; with several receivers that is the one that scores.
        spans_per_s: from the first request until nothing waits (of peers: until all is answered);
            the senders share the machine.
    """

    cpu_us_per_span: float
    main_us_per_span: float
    spans_per_s: float


@dataclass(frozen=True)
class _Running:
    """A receiver: where it listens, by protocol, its process, and how to wait until it is done."""

    addresses: dict[str, str]
    pid: int
    wait: Callable[[], None]


def measure(case: Case, part: float) -> Figures:
    """Run one case with a part of the usual dose.

    The first tenth of the requests is not counted: a collector runs for days, and what it loads
    and learns once (modules, the shapes of spans) is no cost of a span.
    """
    dose = case.dose(part)
    is_http = case.protocol == "http"
    bodies = dose.zipped if case.is_zipped and is_http else dose.bodies
    cut = max(CONNECTIONS, len(bodies) // 10 // CONNECTIONS * CONNECTIONS)
    if cut >= len(bodies):
        raise ValueError(f"{dose} makes {len(bodies)} requests; expected more than {cut}")
    with _started(case) as receiver:
        to = receiver.addresses[case.protocol]
        send(case.protocol, to, bodies[:cut], is_zipped=case.is_zipped)
        receiver.wait()
        pids = family_of(receiver.pid)
        before, began_s = [cpu_ns(pid) for pid in pids], time.monotonic()
        send(case.protocol, to, bodies[cut:], is_zipped=case.is_zipped)
        answered_s = time.monotonic() - began_s
        receiver.wait()
        took_s = time.monotonic() - began_s if case.subject == OURS else answered_s
        used = [cpu_ns(pid) - then for pid, then in zip(pids, before, strict=True)]
    spans = dose.spans * (1 - cut / len(bodies))
    return Figures(sum(used) / spans / 1e3, used[0] / spans / 1e3, spans / took_s)


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
            yield _Running({case.protocol: address}, pid, _no_wait)


def _small_receiver(what: str, protocol: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.ingest.receivers", what, protocol]


@contextlib.contextmanager
def _collector(case: Case, sink: str | None) -> Iterator[_Running]:
    command = [sys.executable, "-m", "otel_straggler.cli", "collector"]
    if case.stage == "receive":
        command = [sys.executable, "-m", "benchmarks.ingest.receive_only"]
    command += ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE]
    command += ["--receivers", str(case.receivers)]
    if sink is not None:
        mode = "sampled" if case.stage == "forward sampled" else "all"
        command += ["--forward", f"http://{sink}", "--forward-mode", mode]
    with serving(command) as (line, pid):
        told = json.loads(line)
        addresses = {"http": told["otlp_http"], "grpc": told["otlp_grpc"]}
        yield _Running(addresses, pid, lambda: _until_nothing_waits(told["metrics"]))


@contextlib.contextmanager
def _rotel(sink: str | None) -> Iterator[_Running]:
    program = rotel.find()
    assert program is not None
    with rotel.serving(program, sink) as (addresses, pid):
        yield _Running(addresses, pid, lambda: _until_idle(pid))


def _no_wait() -> None:
    """What is answered is done."""


def _until_nothing_waits(metrics: str) -> None:
    """To be scored or sent; the last window, and its spans, may stay open."""
    while True:
        with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        waiting = [float(x.rpartition(" ")[2]) for x in lines if x.startswith(_WAITING)]
        if waiting and not any(waiting):
            return
        time.sleep(0.05)


def _until_idle(pid: int) -> None:
    """It answers first and sends batches later: until it has used next to nothing for 0.5 s."""
    used_ns = -1
    while (now_ns := cpu_ns(pid)) - used_ns > 2_000_000:
        used_ns = now_ns
        time.sleep(0.5)
