"""What heartbeats and sections cost a rank, compared with NVRx's client, in one run.

    python -m benchmarks.agent        (with NVRx where it is installed: make bench-peers)

Prints JSON: wall time of a call in the training thread, in nanoseconds, the median of rounds that
take turns, and for each budget the ratio of two ways, and that to the budget (1.0 = just met). Both
clients talk to a monitor in a process of its own; of NVRx only the health checks are left out,
which need its GPU libraries. ``send_only`` is a stand-in for NVRx after 0.4.1 with
``skip_section_response``: a pickled message, sent, without waiting for an answer. The loop is also
timed while our agent is stopped (SIGSTOP).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import nvrx
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.process import LOCK, running_agent
from otel_straggler.fault_tolerance import RankMonitorClient

CALLS = 500
SECTIONS = {"step": 1_000.0}
BUDGETS = tuple(
    (f"ours_{what}", f"{peer}_{what}", 4)
    for what in ("heartbeat", "section")
    for peer in ("nvrx", "send_only")
)
"""(what, compared with what, how many times cheaper it has to be)."""
Way = Callable[[], None]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=61)
    rounds = parser.parse_args().rounds
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    with tempfile.TemporaryDirectory() as folder:
        costs = _costs(Path(folder), rounds)
    result = {
        **about("nvidia-resiliency-ext"),
        "nvrx": nvrx.is_installed() or nvrx.NOT_INSTALLED,
        "rounds": rounds,
        "calls_per_round": CALLS,
        "ns": {name: round(ns, 1) for name, ns in costs.items()},
    }
    print_result(result, _budgets(costs))


def _costs(folder: Path, rounds: int) -> dict[str, float]:
    """Nanoseconds of a heartbeat, and of a section opened and closed, less an empty loop's."""
    with contextlib.ExitStack() as stack:
        ways: dict[str, Way] = {"empty": _loop(lambda: None)}
        if nvrx.is_installed():
            ways |= _ways("nvrx", stack.enter_context(_nvrx_client(folder)))
        ways |= _ways("send_only", stack.enter_context(_send_only()))
        agent = running_agent(
            FaultToleranceConfig(rank_section_timeouts=SECTIONS),
            folder=folder / "agent",
            environment=dict(os.environ),
        )
        os.environ |= stack.enter_context(agent)
        client = RankMonitorClient()
        client.init_workload_monitoring()
        stack.callback(client.shutdown_workload_monitoring)
        ours = _ways("ours", client)
        taken = _medians(ways | ours, rounds)
        pid = int((folder / "agent" / LOCK).read_text())
        os.kill(pid, signal.SIGSTOP)
        stopped = _medians({"empty": ways["empty"], **ours}, rounds)
        os.kill(pid, signal.SIGCONT)
    return taken | {f"{name}_agent_stopped": ns for name, ns in stopped.items()}


def _ways(whose: str, client: Any) -> dict[str, Way]:
    def section() -> None:
        client.start_section("step")
        client.end_section("step")

    return {
        f"{whose}_heartbeat": _loop(client.send_heartbeat),
        f"{whose}_section": _loop(section),
    }


def _loop(call: Callable[[], object]) -> Way:
    def loop() -> None:
        for _ in range(CALLS):
            call()

    return loop


def _medians(ways: dict[str, Way], rounds: int) -> dict[str, float]:
    taken = take_turns(ways, rounds, time.perf_counter_ns)
    medians = {name: statistics.median(each) / CALLS for name, each in taken.items()}
    return {name: ns - medians["empty"] for name, ns in medians.items() if name != "empty"}


def _budgets(costs: dict[str, float]) -> dict[str, Any]:
    result = {
        f"{name} with a stopped agent / a running one <= 3": judge(
            costs[f"{name}_agent_stopped"] / costs[name], 3, ""
        )
        for name in ("ours_heartbeat", "ours_section")
    }
    for name, peer, times in BUDGETS:
        key = f"{name} / {peer} <= 1/{times}"
        if peer in costs:
            result[key] = judge(costs[name] / costs[peer], 1 / times, "")
        else:
            result[key] = not_measured(nvrx.NOT_INSTALLED)
    return result


@contextlib.contextmanager
def _nvrx_client(folder: Path) -> Iterator[Any]:
    """Its client and monitor; forked, so that the monitor is without health checks, too."""
    if importlib.util.find_spec("defusedxml") is None:  # reads the output of nvidia-smi
        package, module = "defusedxml", "defusedxml.ElementTree"
        sys.modules |= {name: types.ModuleType(name) for name in (package, module)}
        setattr(sys.modules[package], "ElementTree", sys.modules[module])  # noqa: B010
    from nvidia_resiliency_ext import fault_tolerance as theirs

    path = str(folder / "nvrx.sock")
    os.environ["FT_RANK_MONITOR_IPC_SOCKET"] = path
    config = theirs.FaultToleranceConfig(
        rank_section_timeouts=SECTIONS, enable_nic_monitor=False, log_level="ERROR"
    )
    server = theirs.RankMonitorServer.run_in_subprocess(
        config, path, False, multiprocessing.get_context("fork")
    )
    client = theirs.RankMonitorClient()
    client.init_workload_monitoring()
    try:
        yield client
    finally:
        client.shutdown_workload_monitoring()
        server.terminate()
        server.join(10)


class _Message:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class _SendOnly:
    """Sends a pickled message for each event, and does not wait."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send_heartbeat(self) -> None:
        self._send(_Message(rank=0, state={}))

    def start_section(self, name: str) -> None:
        self._send(_Message(rank=0, section=name, action="open"))

    def end_section(self, name: str) -> None:
        self._send(_Message(rank=0, section=name, action="close"))

    def _send(self, message: _Message) -> None:
        body = pickle.dumps(message)
        self._socket.sendall(struct.pack(">I", len(body)) + body)


@contextlib.contextmanager
def _send_only() -> Iterator[_SendOnly]:
    ours, theirs = socket.socketpair()
    reader = multiprocessing.get_context("fork").Process(target=_read_all, args=(ours, theirs))
    reader.start()
    theirs.close()
    try:
        yield _SendOnly(ours)
    finally:
        ours.close()
        reader.join(10)


def _read_all(ours: socket.socket, theirs: socket.socket) -> None:
    ours.close()
    while theirs.recv(65_536):
        pass


if __name__ == "__main__":
    main()
