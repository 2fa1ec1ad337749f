"""Jobs of training processes that can be made to fail, and can be sent signals."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_straggler.demo.processes import free_address

ORDERS = ("nothing", "finish", "slow", "stuck", "fail", "checkpoint")
_READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a job is.

    Attributes:
        name: of the job here, and of its files.
        run_id, endpoint, heartbeat_s, service_name: as they are configured.
        placement: rank and node of each.
        attempt: restarts so far.
        first_step: the number of its first step.
        attributes: further ones of its resource.
        environment: further variables of its ranks.
        orders, log, port: how it is spoken with.
    """

    name: str
    run_id: str
    endpoint: str
    placement: Sequence[Mapping[str, Any]]
    orders: str
    log: str
    port: int
    heartbeat_s: float = 0.5
    service_name: str = "pretraining"
    attempt: int = 0
    first_step: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Job:
    """The ranks of one attempt."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._changed = threading.Condition()
        self._pids: dict[int, int] = {}
        self._exit_codes: dict[int, int] = {}

    @property
    def run_id(self) -> str:
        return self.spec.run_id

    @property
    def ranks(self) -> range:
        return range(len(self.spec.placement))

    @property
    def log(self) -> str:
        """What the ranks have printed."""
        path = Path(self.spec.log)
        return path.read_text(errors="replace") if path.exists() else ""

    def order(self, what: str, *, rank: int = 0, value: float = 0.0) -> None:
        """Send an order to all ranks, with the next step of rank 0.

        Args:
            what: of ``ORDERS``.
            rank: whom it is about.
            value: seconds.
        """
        path = Path(self.spec.orders)
        waiting = path.with_suffix(".new")
        waiting.write_text(json.dumps({"order": ORDERS.index(what), "rank": rank, "value": value}))
        waiting.rename(path)

    def signal(self, number: int, ranks: Sequence[int] | None = None) -> None:
        """To these ranks, or all; those that have ended are left out."""
        with self._changed:
            alive = [rank for rank in self._pids if rank not in self._exit_codes]
        for rank in alive if ranks is None else [rank for rank in ranks if rank in alive]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self, timeout_s: float = 60.0) -> dict[int, int]:
        """Exit codes of all ranks, once all have ended."""
        with self._changed:
            if not self._changed.wait_for(self._have_all_ended, timeout_s):
                raise TimeoutError(f"{self.spec.name}: not ended after {timeout_s} s\n{self.log}")
            return dict(self._exit_codes)

    def wait_for_one(self, timeout_s: float = 60.0) -> int:
        """The rank that has ended first."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._exit_codes, timeout_s):
                raise TimeoutError(f"{self.spec.name}: none has ended after {timeout_s} s")
            return next(iter(self._exit_codes))

    def note(self, rank: int, *, pid: int | None = None, ended: int | None = None) -> None:
        """What the launcher says of a rank."""
        with self._changed:
            if pid is not None:
                self._pids[rank] = pid
            if ended is not None:
                self._exit_codes[rank] = ended
            self._changed.notify_all()

    def _have_all_ended(self) -> bool:
        return len(self._exit_codes) == len(self.spec.placement)


class Launcher:
    """A process that forks the ranks of all jobs; see ``ranks.py``.

    Args:
        folder: for logs and orders.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._errors = (folder / "launcher.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.alert_delay.ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._thread = threading.Thread(target=self._listen, name="launcher")
        self._thread.start()
        if not self._ready.wait(_READY_S) or self._process.poll() is not None:
            self.close()
            raise RuntimeError((folder / "launcher.log").read_text(errors="replace")[-4000:])

    def start(
        self,
        run_id: str,
        endpoint: str,
        *,
        nodes: Sequence[str] = ("node-0", "node-0", "node-1", "node-1"),
        **more: Any,
    ) -> Job:
        """Start a rank on each of ``nodes``; further arguments are those of :class:`JobSpec`."""
        with self._lock:
            name = f"{run_id}.{len(self._jobs)}"
            spec = JobSpec(
                name=name,
                run_id=run_id,
                endpoint=endpoint,
                placement=[{"rank": rank, "node": node} for rank, node in enumerate(nodes)],
                orders=str(self._folder / f"{name}.orders"),
                log=str(self._folder / f"{name}.log"),
                port=int(free_address().rpartition(":")[2]),
                **more,
            )
            job = self._jobs[name] = Job(spec)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(dataclasses.asdict(spec)).encode() + b"\n")
            self._process.stdin.flush()
        return job

    def close(self) -> None:
        """Kill all ranks that are left, and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._thread.join()
        self._process.stdout.close()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = json.loads(line)
            if "ready" not in text:
                self._jobs[text.pop("job")].note(**text)
            self._ready.set()
        self._ready.set()
