"""How a process ends: exit, SIGTERM, fork. Each test runs a real process against a sink."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_straggler import semconv
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

from .conftest import EXIT_DEADLINE

SIGTERMED = -signal.SIGTERM
BOUND_S = 60
INHERITED = ("OTEL_STRAGGLER_PROTOCOL", "PYTHONPATH", EXIT_DEADLINE)
SOON_S = "0.5"
HEAD = """
import ctypes, os, signal, sys, threading, time
import otel_straggler as o
url = sys.argv[1]
def configure(**more):
    return o.configure(**{"endpoint": url, "run_id": "r", "rank": 0, "world_size": 1, **more})
def ready():
    print("ready", flush=True)
"""


BOTH = ("http/protobuf", "grpc")
with_both = pytest.mark.parametrize("protocol", BOTH)
"""Where the threads or the deadline of the transport matter, with each push."""


needs_native = pytest.mark.skipif(NATIVE is None, reason="the extension module is not built")


@pytest.fixture(params=[BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.nightly)])
def protocol(request: pytest.FixtureRequest) -> str:
    """Every ending holds for both transports; most over gRPC are left to the night."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _children_speak_it(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_STRAGGLER_PROTOCOL", protocol)


@contextmanager
def process(body: str, url: str, *, timeout_ms: int = 10_000) -> Iterator[subprocess.Popen[str]]:
    """Run ``body`` in a process of its own; it is killed at the latest when the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            "OTEL_EXPORTER_OTLP_TIMEOUT": str(timeout_ms),
            "PATH": "/usr/bin:/bin",
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
        },
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=BOUND_S)


def wait_ready(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "ready\n", child.stderr.read() if child.stderr else ""


def run(body: str, url: str, *, timeout_ms: int = 10_000) -> subprocess.Popen[str]:
    """Run ``body`` to its end."""
    with process(body, url, timeout_ms=timeout_ms) as child:
        child.wait(BOUND_S)
        return child


def names(sink: CapturedRequests) -> list[str]:
    return [span.name for span in sink.spans()]


def outcomes(sink: CapturedRequests) -> list[str]:
    return [p.attributes["outcome"] for p in sink.points(semconv.RANK_FINISHED)]


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


RECORD_THEN = """
configure(flush_s=3600)
time.sleep(0.3)  # the first tick is over: what follows is sent by nobody but the ending
with o.section("last"):
    pass
"""


@with_both
def test_a_program_that_just_ends_loses_nothing(sink: CapturedRequests) -> None:
    """Nobody called shutdown(), so nobody knows how it went."""
    assert run(RECORD_THEN, sink.url).returncode == 0
    assert names(sink) == ["last"]
    assert outcomes(sink) == ["unknown"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("0", "unknown"), ("", "unknown"), ("3", "failed"), ("'no data'", "failed")],
)
def test_a_program_that_leaves_with_an_error_code_has_failed(
    sink: CapturedRequests, code: str, outcome: str
) -> None:
    """Also out of an open section. Leaving with 0 says nothing about the run."""
    leave = f"with o.section('open'): sys.exit({code})"
    child = run(RECORD_THEN + leave, sink.url)
    assert (child.returncode != 0) == (outcome == "failed")
    assert outcomes(sink) == [outcome]


@needs_native
@pytest.mark.parametrize("protocol", ["http/protobuf"])
@pytest.mark.parametrize(
    ("end", "code", "outcome"),
    [
        ("raise SystemExit(0)", 0, "unknown"),
        ("raise SystemExit", 0, "unknown"),
        ("raise SystemExit(3)", 3, "failed"),
        ("raise SystemExit('no data')", 1, "failed"),
        ("exit(4)", 4, "failed"),
    ],
)
def test_the_code_that_a_process_exits_with_is_its_outcome(
    sink: CapturedRequests, end: str, code: int, outcome: str
) -> None:
    """Python keeps no trace of a SystemExit that was raised without sys.exit(): the code is known
    only after Python has ended."""
    child = run(RECORD_THEN + end, sink.url)
    assert child.returncode == code
    assert outcomes(sink)[-1] == outcome


@needs_native
@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_an_outcome_that_was_reported_is_not_corrected(sink: CapturedRequests) -> None:
    """The user's word is the last."""
    assert run(RECORD_THEN + "o.shutdown(); raise SystemExit(3)", sink.url).returncode == 3
    assert outcomes(sink) == ["ok"]


def test_an_exit_that_the_program_outlived_is_no_failure(sink: CapturedRequests) -> None:
    """A parser of arguments exits, the program catches that, and trains."""
    body = """
    configure()
    o.step(1)
    try: sys.exit(2)
    except SystemExit: pass
    t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()
    o.step(2)
    """
    assert run(body, sink.url).returncode == 0
    assert outcomes(sink) == ["unknown"]


def test_after_shutdown_sys_exit_is_as_before(sink: CapturedRequests) -> None:
    body = """
    before = sys.exit
    configure(); assert sys.exit != before
    o.shutdown(); assert sys.exit is before
    """
    assert run(body, sink.url).returncode == 0


def test_a_library_that_wraps_sys_exit_after_us_is_left_alone(sink: CapturedRequests) -> None:
    """Trackers do so; neither calls the other for ever when telemetry begins again."""
    body = """
    configure()
    ours = sys.exit
    def theirs(code=0): ours(code)
    sys.exit = theirs
    o.shutdown(); assert sys.exit is theirs
    configure()
    sys.exit(3)
    """
    assert run(body, sink.url).returncode == 3
    assert outcomes(sink) == ["ok", "failed"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(("end", "outcome"), [("pass", "unknown"), ("1 / 0", "failed")])
@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_child_of_multiprocessing_reports_how_it_ended(
    sink: CapturedRequests, method: str, end: str, outcome: str, tmp_path: Path
) -> None:
    """Such children do not run ``atexit`` if forked, and keep an exception to themselves."""
    program = tmp_path / "launch.py"
    program.write_text(
        f"""
import multiprocessing, sys
import otel_straggler as o
def rank(url):
    o.configure(endpoint=url, run_id="r", rank=0, world_size=1)
    with o.step(0): {end}
if __name__ == "__main__":
    child = multiprocessing.get_context("{method}").Process(target=rank, args=(sys.argv[1],))
    child.start()
    child.join()
"""
    )
    subprocess.run([sys.executable, program, sink.url], timeout=BOUND_S, check=True)
    assert outcomes(sink) == [outcome]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [("ValueError('boom')", "failed"), ("KeyboardInterrupt", "cancelled")],
)
def test_a_program_that_fails_loses_nothing_and_says_so(
    sink: CapturedRequests, error: str, outcome: str
) -> None:
    """An exception that reaches the top is a recorded end, Ctrl-C among them."""
    assert run(RECORD_THEN + f"raise {error}", sink.url).returncode != 0
    assert names(sink) == ["last"]
    assert outcomes(sink) == [outcome]


STUCK_IN_A_REQUEST = """
configure(flush_s=0.05, heartbeat_s=0.1)  # a heartbeat gives up soon, spans do not
with o.section("last"):
    pass
time.sleep(0.5)  # spans are on their way
"""

WAYS_TO_BE_BUSY = {
    "asleep": "time.sleep(3600)",
    "computing in Python": "while True: pass",
    "waiting for a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "in a system call": "ctypes.CDLL(None).pause()",
    "blocked in C for ever": """
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)
""",
}


@pytest.mark.parametrize("busy", WAYS_TO_BE_BUSY)
def test_sigterm_ends_the_process_by_the_signal_after_a_flush(
    sink: CapturedRequests, busy: str
) -> None:
    """Whatever the main thread is doing, even if it never runs Python again. A scheduler ends ranks
    so: the run was preempted."""
    body = RECORD_THEN + "ready()\n" + WAYS_TO_BE_BUSY[busy]
    with process(body, sink.url) as child:
        wait_ready(child)
        child.terminate()
        assert child.wait(BOUND_S) == SIGTERMED
    assert names(sink) == ["last"]
    assert outcomes(sink) == ["preempted"]


@with_both
@pytest.mark.parametrize(
    "busy", [pytest.param("asleep", marks=pytest.mark.nightly), "blocked in C for ever"]
)
def test_sigterm_does_not_wait_for_a_collector_that_never_answers(
    busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time-out of a request is a thousand seconds here; the deadline is half of one."""
    monkeypatch.setenv(EXIT_DEADLINE, SOON_S)
    body = STUCK_IN_A_REQUEST + "ready()\n" + WAYS_TO_BE_BUSY[busy]
    with black_hole() as url, process(body, url, timeout_ms=1_000_000) as child:
        wait_ready(child)
        child.terminate()
        assert child.wait(BOUND_S) == SIGTERMED


@pytest.mark.parametrize("last", ["", "o.shutdown()", "o.flush(timeout_s=0.1)"])
def test_the_exit_does_not_wait_for_a_collector_that_never_answers(
    last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does an explicit end."""
    monkeypatch.setenv(EXIT_DEADLINE, SOON_S)
    with black_hole() as url:
        assert run(STUCK_IN_A_REQUEST + last, url, timeout_ms=1_000_000).returncode == 0


@with_both
def test_a_handler_of_the_users_own_is_called_after_the_flush(sink: CapturedRequests) -> None:
    """It decides what happens next; here the program ends in order, because of the signal."""
    body = """
    has_come = threading.Event()
    def own(signum, frame):
        has_come.set()
    signal.signal(signal.SIGTERM, own)
    configure(flush_s=3600)
    time.sleep(0.3)
    with o.section("before"): pass
    ready()
    while not has_come.is_set():
        time.sleep(0.01)
    with o.section("after"): pass
    o.shutdown()
    assert signal.getsignal(signal.SIGTERM) is own
    """
    with process(body, sink.url) as child:
        wait_ready(child)
        child.terminate()
        assert child.wait(BOUND_S) == 0
    assert names(sink) == ["before", "after"]
    assert outcomes(sink) == ["preempted"]


OWN_WAYS_TO_END = {
    "leaves in order": ("sys.exit(0)", 0),
    "leaves with an error": ("sys.exit(3)", 3),
    "raises": ("raise RuntimeError('told to end')", 1),
    "interrupts": ("raise KeyboardInterrupt", -signal.SIGINT),
    "does as by default": (
        "signal.signal(signum, signal.SIG_DFL); os.kill(os.getpid(), signum); time.sleep(60)",
        SIGTERMED,
    ),
}


@pytest.mark.parametrize("way", OWN_WAYS_TO_END)
def test_an_end_by_the_users_own_handler_is_a_preemption(sink: CapturedRequests, way: str) -> None:
    """However the handler ends the program, SIGTERM was the reason; before it ends, the rank says
    with its heartbeats that it is about to."""
    does, code = OWN_WAYS_TO_END[way]
    body = f"""
    def own(signum, frame):
        time.sleep(0.3)  # a checkpoint, as long as several heartbeats
        {does}
    signal.signal(signal.SIGTERM, own)
    configure(heartbeat_s=0.05, flush_s=0.05)
    with o.section("last"): pass
    ready()
    while True: time.sleep(0.01)
    """
    with process(body, sink.url) as child:
        wait_ready(child)
        sink.wait_for(lambda s: s.points(semconv.RANK_INFO))
        child.terminate()
        assert child.wait(BOUND_S) == code
    reported = [p.attributes.get(semconv.RANK_ENDING) for p in sink.points(semconv.RANK_INFO)]
    assert (reported[0], reported[-1]) == (None, True)
    assert outcomes(sink) == (["preempted"] if code != SIGTERMED else [])


def test_what_the_user_says_of_the_end_wins_over_sigterm(sink: CapturedRequests) -> None:
    """A program that has reached its end all the same is finished."""
    body = """
    signal.signal(signal.SIGTERM, lambda *_: None)
    configure()
    os.kill(os.getpid(), signal.SIGTERM)
    o.shutdown("ok")
    """
    assert run(body, sink.url).returncode == 0
    assert outcomes(sink) == ["ok"]


@pytest.mark.parametrize(
    "setup",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); configure()",
        "configure(handle_sigterm=False)",
        "t = threading.Thread(target=configure); t.start(); t.join()",
    ],
    ids=["ignored", "not wanted", "not the main thread"],
)
def test_sigterm_is_left_alone_where_it_is_not_ours(sink: CapturedRequests, setup: str) -> None:
    """No handler, no wakeup descriptor."""
    body = f"""
    before = signal.getsignal(signal.SIGTERM)
    {setup}
    now = signal.getsignal(signal.SIGTERM)
    assert now is before or now is signal.SIG_IGN
    assert signal.set_wakeup_fd(-1) == -1
    """
    assert run(body, sink.url).returncode == 0


def test_a_wakeup_descriptor_of_others_is_left_alone(sink: CapturedRequests) -> None:
    """Without one the process could become deaf, so no handler is installed either."""
    body = """
    a, b = os.pipe()
    os.set_blocking(b, False)
    signal.set_wakeup_fd(b)
    configure()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == b
    """
    assert run(body, sink.url).returncode == 0


@pytest.mark.parametrize("where", ["main thread", "other thread"])
def test_after_shutdown_sigterm_is_as_before(sink: CapturedRequests, where: str) -> None:
    """Even if another thread shut down and the main thread never runs Python again."""
    end = {
        "main thread": "o.shutdown()",
        "other thread": "t = threading.Thread(target=o.shutdown); t.start(); t.join()",
    }[where]
    body = RECORD_THEN + end + "\nready()\n" + WAYS_TO_BE_BUSY["blocked in C for ever"]
    with process(body, sink.url) as child:
        wait_ready(child)
        child.terminate()
        assert child.wait(BOUND_S) == SIGTERMED
    assert outcomes(sink) == ["ok"]


def test_sigkill_loses_at_most_one_flush_interval(sink: CapturedRequests) -> None:
    """What has been flushed is there."""
    body = """
    configure(flush_s=0.05)
    for n in range(10**9):
        with o.step(n), o.section("forward"):
            time.sleep(0.001)
    """
    with process(body, sink.url) as child:
        sink.wait_for(lambda s: len(s.spans()) > 20)
        child.kill()
        child.wait(BOUND_S)
    seqs = [s.attributes["straggler.seq"] for s in sink.spans() if s.name == "forward"]
    assert seqs == list(range(len(seqs)))


def test_a_forked_child_records_nothing_and_sends_nothing(sink: CapturedRequests) -> None:
    """A DataLoader's worker is no rank, and leaves the parent's session alone."""
    body = """
    configure(flush_s=3600)
    with o.step(1), o.section("outer"):
        pid = os.fork()
        if pid == 0:
            assert [t.name for t in threading.enumerate()] == ["MainThread"]
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert signal.set_wakeup_fd(-1) == -1
            with o.step(2), o.section("child"), o.phase("eval"):
                pass
            o.flush()
            o.shutdown()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with o.section("parent"): pass
    o.shutdown()
    """
    child = run(body, sink.url)
    assert child.returncode == 0
    assert names(sink) == ["outer", "step", "parent"]
    assert outcomes(sink) == ["ok"]


@with_both
def test_sigterm_to_a_forked_child_ends_only_the_child(sink: CapturedRequests) -> None:
    """A DataLoader stops its workers this way; the parent must not take it for its own."""
    body = """
    configure(flush_s=3600, exit_deadline_s=0.2)
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b"x")
        time.sleep(3600)
    os.read(r, 1)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    ctypes.CDLL(None).usleep(1_500_000)  # no bytecode runs meanwhile
    o.shutdown()
    """
    assert run(body, sink.url).returncode == 0
    assert outcomes(sink) == ["ok"]


@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_forked_child_may_have_a_session_of_its_own(sink: CapturedRequests) -> None:
    """Launchers fork their ranks."""
    body = """
    configure(flush_s=3600)
    pid = os.fork()
    if pid == 0:
        configure(rank=1, world_size=2)
        with o.section("child"): pass
        o.shutdown()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with o.section("parent"): pass
    o.shutdown()
    """
    assert run(body, sink.url).returncode == 0
    result = {s.name: s.resource for s in sink.spans()}
    assert {n: r["training.rank"] for n, r in result.items()} == {"child": 1, "parent": 0}
    assert len({r["straggler.session.id"] for r in result.values()}) == 2


@pytest.mark.parametrize("protocol", ["grpc"])
def test_a_forked_child_of_a_process_with_grpc_is_refused_grpc(sink: CapturedRequests) -> None:
    """gRPC's core would hang there or crash; the parent's session goes on."""
    body = """
    configure(flush_s=3600)
    pid = os.fork()
    if pid == 0:
        try:
            configure(rank=1, world_size=2)
        except ValueError as error:
            os._exit(7 if "'spawn', or use http/protobuf" in str(error) else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with o.section("parent"): pass
    o.shutdown()
    """
    assert run(body, sink.url).returncode == 0
    assert names(sink) == ["parent"]


@with_both
def test_workers_forked_in_the_middle_of_requests_live(sink: CapturedRequests) -> None:
    """A library that breaks a DataLoader's workers would break training."""
    body = """
    import multiprocessing
    configure(flush_s=0.005, heartbeat_s=0.005)
    fork = multiprocessing.get_context("fork")
    for _ in range(10):
        workers = [fork.Process(target=time.sleep, args=(0.01,)) for _ in range(4)]
        for worker in workers: worker.start()
        with o.section("parent"): pass
        for worker in workers: worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    o.shutdown()
    """
    child = run(body, sink.url)
    assert child.returncode == 0
    assert names(sink) == ["parent"] * 10


def test_workers_of_a_data_loader_stay_silent(sink: CapturedRequests) -> None:
    """Their sections cost nothing and reach nobody."""
    pytest.importorskip("torch")
    body = """
    import torch
    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 8
        @o.section("getitem", kind="data")
        def __getitem__(self, i): return i
    configure(flush_s=3600)
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=2, multiprocessing_context="fork")
    for _ in loader: pass
    with o.section("parent"): pass
    o.shutdown()
    """
    assert run(body, sink.url).returncode == 0
    assert names(sink) == ["parent"]
