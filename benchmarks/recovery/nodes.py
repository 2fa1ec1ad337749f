"""Nodes of a run on this machine: network namespaces with a cable between them.

What a namespace sends to its 127.0.0.1:4318 arrives at a collector of this machine, so that no
packet leaves the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_CLONE_NEWNET = 0x40000000
_OTLP_PORT = 4318
_BUFFER = 65_536
_END_S = 10.0


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "no command ip (iproute2): nodes of their own network could not be made"
    name = f"straggler-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        return "not allowed to make network namespaces: nodes of their own network were not tried"
    subprocess.run(["ip", "netns", "delete", name], check=False)
    return ""


class Node:
    """One namespace, with an address in the network of its run."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.label = f"node-{index}"
        self.interface = f"v{os.getpid() % 100_000}-{index}"
        self.address = f"10.77.0.{index + 1}"

    def command(self, *command: str | Path) -> list[str]:
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def start(self, command: Sequence[str | Path], environment: dict[str, str], log: Path) -> Any:
        """Start a command in the node; returns the process."""
        own = {
            "OTEL_RESOURCE_ATTRIBUTES": f"host.name={self.label}",
            "GLOO_SOCKET_IFNAME": self.interface,
            "OTEL_STRAGGLER_ENDPOINT": f"http://127.0.0.1:{_OTLP_PORT}",
            "OMP_NUM_THREADS": "1",
        }
        with log.open("ab") as out:
            return subprocess.Popen(
                self.command(*command),
                env={**os.environ, **own, **environment},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pids(self) -> list[int]:
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in listed.stdout.split()]

    def kill(self) -> None:
        """SIGKILL of all its processes, as a node that loses its power."""
        for _ in range(100):
            left = self.pids()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                return
            time.sleep(0.05)


@contextlib.contextmanager
def two_nodes(collector: str) -> Iterator[tuple[Node, Node]]:
    """Two nodes that reach each other, and a collector at HOST:PORT of this machine."""
    nodes = tuple(Node(f"straggler-{os.getpid()}-{index}", index) for index in range(2))
    first, second = nodes
    relays: list[_Relay] = []
    try:
        for node in nodes:
            _ip("netns", "add", node.name)
            _ip("-n", node.name, "link", "set", "lo", "up")
        cable = ("type", "veth", "peer", "name", second.interface, "netns", second.name)
        _ip("link", "add", first.interface, "netns", first.name, *cable)
        for node in nodes:
            own = ("addr", "add", f"{node.address}/24", "dev", node.interface)
            _ip("-n", node.name, *own)
            _ip("-n", node.name, "link", "set", node.interface, "up")
            relays.append(_Relay(node.name, collector))
        yield first, second
    finally:
        for node in nodes:
            node.kill()
        for relay in relays:
            relay.close()
        for node in nodes:
            subprocess.run(["ip", "netns", "delete", node.name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class _Relay:
    """Passes on what comes to port 4318 of a namespace's loopback: a socket stays in the namespace
    in which it was made."""

    def __init__(self, namespace: str, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = _listener_in(namespace)
        self._thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_END_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    """Both ways, until both sides have closed theirs."""
    with client, server:
        answers = threading.Thread(target=_copy, args=(server, client), daemon=True)
        answers.start()
        _copy(client, server)
        answers.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(_BUFFER):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _listener_in(namespace: str) -> socket.socket:
    """Made in a thread of its own, which alone enters the namespace."""
    made: list[socket.socket] = []

    def make() -> None:
        file = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET):
                return
        finally:
            os.close(file)
        made.append(socket.create_server(("127.0.0.1", _OTLP_PORT)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise OSError(f"cannot listen in namespace {namespace}")
    return made[0]
