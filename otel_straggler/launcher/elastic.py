"""torchrun in this process, with an agent that reports what it does.

    python -m otel_straggler.launcher.elastic EVENTS-FD JOB PROGRESS TORCHRUN-ARGUMENTS

``otel-straggler run`` starts it and reads the events from the pipe of that descriptor. PROGRESS is
its :class:`~otel_straggler.launcher.progress.Progress` as JSON, or ``null``. The agent is torch's,
extended in the methods that torch documents for it ("Extending the Agent"). Before each attempt the
nodes agree in the rendezvous' store on its number and on the run's name: torchelastic counts
restarts per node, so that after one node's failure ranks of a run would be in different attempts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Final

from otel_straggler.client.identity import named_run_id
from otel_straggler.client.run_names import new_run_name
from otel_straggler.client.settings import node_name
from otel_straggler.client.termination import PARENT_PID, end_with_parent
from otel_straggler.launcher.events import (
    MEMBERSHIP,
    Exit,
    exit_reason,
    failures_text,
    in_order_of_blame,
    read_error_file,
)
from otel_straggler.launcher.progress import Progress
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.semconv import LaunchEventName
from otel_straggler.strict_json import parse_object

_IS_PROGRAM: Final = __name__ == "__main__"
_LAUNCHER: Final = end_with_parent(signal.SIGTERM, also_stopped=True) if _IS_PROGRAM else 0
"""Its process, watched from before torch is imported, which takes seconds."""

from torch.distributed import run as torchrun  # noqa: E402
from torch.distributed.elastic.multiprocessing import SignalException  # noqa: E402
from torch.distributed.launcher import api  # noqa: E402

ATTEMPT: Final = "OTEL_STRAGGLER_ATTEMPT"
RUN_ID: Final = "OTEL_STRAGGLER_RUN_ID"
_MESSAGES: Final = "OTEL_STRAGGLER_FAILURE_MESSAGES"
_KEY: Final = "otel_straggler"


class Pipe:
    """Writes events for the launcher. A launcher that is gone is no reason to fail."""

    def __init__(self, fd: int, job: int) -> None:
        self._fd = fd
        self._job = job
        self._node = node_name(os.environ)

    def send(self, name: LaunchEventName, **values: Any) -> None:
        event = LaunchEvent(
            name=name, at_unix_s=time.time(), node=self._node, job=self._job, **values
        )
        with contextlib.suppress(OSError):
            os.write(self._fd, event.to_json().encode() + b"\n")


class ReportingAgent(api.LocalElasticAgent):  # type: ignore[misc]
    """torch's agent of a node; it sends an event for each attempt, exit and restart.

    Attributes:
        pipe, first_attempt, launcher_pid, progress: set by :func:`main` before torchrun starts.
    """

    pipe: Pipe
    first_attempt: int = 0
    launcher_pid: int = 0
    progress: Progress | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._attempt = self.first_attempt - 1
        self._run_id = os.environ.get(RUN_ID, "")
        self._failures: dict[int, Exit] = {}
        self._with_messages = os.environ.get(_MESSAGES, "").strip().lower() != "off"
        self._ending = ""

    def _rendezvous(self, worker_group: Any) -> None:
        super()._rendezvous(worker_group)
        rendezvous = worker_group.spec.rdzv_handler
        run_id = self._run_id or _named(rendezvous)
        wanted: dict[str, Any] = {"attempt": self._attempt + 1, "run_id": run_id}
        may_differ = worker_group.group_world_size > 1 and rendezvous.get_backend() != "static"
        if may_differ:
            wanted = agree(
                worker_group.store, worker_group.group_rank, worker_group.group_world_size, wanted
            )
        self._attempt = int(wanted["attempt"])
        self._run_id = str(wanted["run_id"] or new_run_name())
        os.environ[ATTEMPT] = str(self._attempt)
        os.environ[RUN_ID] = self._run_id

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        self._failures = {}
        self._ending = ""
        pids: dict[int, Any] = super()._start_workers(worker_group)
        ranks = self._ranks(worker_group)
        self._send(
            "straggler.attempt.started",
            ranks=ranks,
            text=f"attempt {self._attempt} of {self._run_id} started: ranks "
            f"{', '.join(map(str, ranks))} of {worker_group.workers[0].world_size}",
        )
        return pids

    def _monitor_workers(self, worker_group: Any) -> Any:
        if self.launcher_pid not in {0, os.getppid()}:  # its signal came where nobody heard it
            raise SignalException("the launcher has gone", signal.SIGTERM)
        result = super()._monitor_workers(worker_group)
        exits = {rank: self._exit(failure) for rank, failure in result.failures.items()}
        for rank in in_order_of_blame(exits):
            if rank not in self._failures:
                self._failures[rank] = exits[rank]
                self._send_exit(rank, result.failures[rank].pid, exits[rank])
        if result.state.value in {"SUCCEEDED", "FAILED"} and not self._ending:
            is_well = result.state.value == "SUCCEEDED"
            reason = exit_reason(0) if is_well else exits[in_order_of_blame(exits)[0]].reason
            text = "all ranks of the node ended well" if is_well else failures_text(self._failures)
            self._send_end(reason, text)
        return result

    def _restart_workers(self, worker_group: Any) -> None:
        reason = self._ending or MEMBERSHIP
        text = failures_text(self._failures) or (
            "the nodes of the run have changed, or ranks of another node have failed"
        )
        if not self._ending:
            self._send_end(reason, text)
        self._send("straggler.run.restarting", reason=reason, text=f"restarting: {text}")
        super()._restart_workers(worker_group)

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, SignalException):
            _ignore_signals()  # a second one would leave ranks behind
            if not self._ending:
                name = signal.Signals(error.sigval).name
                self._send_end(name, f"torchrun got {name}")
        super()._shutdown(*args, **kwargs)

    def _exit(self, failure: Any) -> Exit:
        data = getattr(failure, "error_file_data", None)
        return Exit(failure.exitcode, *read_error_file(data, with_message=self._with_messages))

    def _send_exit(self, rank: int, pid: int, its: Exit) -> None:
        self._send(
            "straggler.rank.exited",
            rank=rank,
            pid=pid,
            exit_code=its.code,
            reason=its.reason,
            text=f"rank {rank} {its.text}",
        )

    def _send_end(self, reason: str, text: str) -> None:
        self._ending = reason
        ranks = self._ranks(self._worker_group)
        progress = self.progress
        if progress is None or reason == "exit_0":
            self._send("straggler.attempt.ended", reason=reason, text=text, ranks=ranks)
            return
        if why := progress.attempt_ended():
            self._remaining_restarts = 0
            text = f"{text}; {why}"
        counted = {"step": progress.step, "stuck_attempts": progress.attempts}
        self._send("straggler.attempt.ended", reason=reason, text=text, ranks=ranks, **counted)

    def _send(self, name: LaunchEventName, **values: Any) -> None:
        self.pipe.send(name, run_id=self._run_id, attempt=self._attempt, **values)

    @staticmethod
    def _ranks(worker_group: Any) -> tuple[int, ...]:
        return tuple(worker.global_rank for worker in worker_group.workers)


def agree(store: Any, node: int, nodes: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """The greatest attempt and the first name that any node of the rendezvous wants.

    Args:
        store: of this round of the rendezvous: no key of an earlier one is in it.
        node: rank of this node, below ``nodes``.
        wanted: "attempt", and "run_id", empty where the node knows none.
    """
    store.set(f"{_KEY}/wanted/{node}", json.dumps(wanted))
    if node == 0:
        keys = [f"{_KEY}/wanted/{each}" for each in range(nodes)]
        all_wanted = [parse_object(value) for value in store.multi_get(keys)]
        names = [each["run_id"] for each in all_wanted if each["run_id"]]
        result = {
            "attempt": max(each["attempt"] for each in all_wanted),
            "run_id": names[0] if names else new_run_name(),
        }
        store.set(f"{_KEY}/agreed", json.dumps(result))
    agreed: dict[str, Any] = parse_object(store.get(f"{_KEY}/agreed"))
    return agreed


def _named(rendezvous: Any) -> str:
    """As a rank would name the run: by the scheduler, else by the rendezvous; empty if neither."""
    return named_run_id({**os.environ, "TORCHELASTIC_RUN_ID": rendezvous.get_run_id()})[0]


def _ignore_signals() -> None:
    for name in os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT").split(","):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            signal.signal(getattr(signal, name.strip()), signal.SIG_IGN)


def main() -> None:
    """Run torchrun with the arguments of this process."""
    ReportingAgent.launcher_pid = _LAUNCHER
    # A signal while torchelastic starts ranks leaves it without those that it has started: it ends
    # as if there were none. The kernel ends them then, and where torchrun is killed.
    os.environ[PARENT_PID] = str(os.getpid())
    ReportingAgent.pipe = Pipe(int(sys.argv.pop(1)), int(sys.argv.pop(1)))
    progress = json.loads(sys.argv.pop(1))
    ReportingAgent.progress = progress and Progress(**progress)
    ReportingAgent.first_attempt = int(os.environ.pop(ATTEMPT, "0"))
    api.LocalElasticAgent = ReportingAgent
    torchrun.main()


if __name__ == "__main__":
    main()
