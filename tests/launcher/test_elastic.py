"""What the nodes of a run agree on before an attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

pytest.importorskip("torch.distributed.run")

from otel_straggler.client.termination import PARENT_PID
from otel_straggler.launcher.elastic import agree


class Store:
    """A store as that of a rendezvous: ``get`` waits."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, 20)
            return self._values[key]

    def multi_get(self, keys: list[str]) -> list[str]:
        return [self.get(key) for key in keys]


def agreed(*wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """What each node hears; all ask at once."""
    store, results = Store(), [{} for _ in wanted]

    def ask(node: int) -> None:
        results[node] = agree(store, node, len(wanted), wanted[node])

    threads = [threading.Thread(target=ask, args=(node,)) for node in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_all_nodes_count_the_same_attempt() -> None:
    """torchelastic counts restarts of a node: one that follows another's failure has none, and a
    node that was replaced begins at 0."""
    wanted = [{"attempt": n, "run_id": "r"} for n in (1, 3, 0)]
    assert agreed(*wanted) == [{"attempt": 3, "run_id": "r"}] * 3


def test_all_nodes_have_the_name_that_one_of_them_knows() -> None:
    wanted = [{"attempt": 0, "run_id": name} for name in ("", "slurm-7", "")]
    assert {each["run_id"] for each in agreed(*wanted)} == {"slurm-7"}


def test_where_no_node_knows_a_name_all_have_the_same_new_one() -> None:
    (name,) = {each["run_id"] for each in agreed(*[{"attempt": 0, "run_id": ""}] * 2)}
    assert name


def test_a_process_whose_parent_is_dead_already_ends_at_once() -> None:
    """The kernel sends its signal only when a parent dies."""
    code = (
        "import signal, os; from otel_straggler.client import termination as t; "
        "print(t.end_with_parent(signal.SIGKILL), t.PARENT_PID in os.environ)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, PARENT_PID: str(pid)},
            check=False,
            capture_output=True,
            text=True,
        )
        for pid in (os.getpid(), os.getpid() + 1)
    ]
    assert (runs[0].returncode, runs[0].stdout) == (0, f"{os.getpid()} False\n")
    assert (runs[1].returncode, runs[1].stdout) == (-signal.SIGKILL, "")
