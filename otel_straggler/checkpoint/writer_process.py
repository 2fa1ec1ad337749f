"""DCP's asynchronous save, in its dedicated process where there is a process group."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import pickle
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, Metadata

from otel_straggler.checkpoint.copying import StateCopier, StateCopy
from otel_straggler.checkpoint.entries import refused_entry, root_cause
from otel_straggler.checkpoint.membership import Membership
from otel_straggler.checkpoint.pacing import step_back
from otel_straggler.checkpoint.saving import (
    REPORT,
    CommittingWriter,
    ExchangingPlanner,
    Operation,
    SavePlanContext,
    SaveReport,
    quiet_dcp,
)
from otel_straggler.client.sections import section
from otel_straggler.errors import UnavailableError, UsageError

AsyncCheckpointerType = dcp.state_dict_saver.AsyncCheckpointerType
_LOG = logging.getLogger("otel_straggler")
WRITER_PID: Final = "otel_straggler_pid"
"""The attribute of the Metadata of a :class:`NothingWriter` with the number of its process."""
_CLOSE_S: Final = 5.0


class RunningSave:
    """A save whose state is copied.

    Args:
        hand_over: has DCP write the copy.
        starting: until it is done the copy waits: two processes that start at once would be two.
        began_s: monotonic, before the copy.

    Attributes:
        is_to_persist: it is copied from the nodes to the persistent folder once it has ended.
        blocking_s: that it stopped the training; save_s: from its begin to its end.
        handed_over_s: from the end of the copy until it could be written.
    """

    def __init__(
        self,
        context: SavePlanContext,
        copied: StateCopy,
        hand_over: Callable[[], Future[Any]],
        starting: Future[Any] | None,
        began_s: float,
    ) -> None:
        self.context = context
        self.copied = copied
        self.is_to_persist = False
        self.blocking_s = 0.0
        self.save_s = 0.0
        self.handed_over_s = 0.0
        self._hand_over = hand_over
        self._starting = starting
        self._began_s = began_s
        self._copied_s = time.monotonic()
        self._upload: Future[Any] | None = None

    def poll(self) -> None:
        """Hand the copy over as soon as it can be; in the main thread, as DCP wants it."""
        if self._upload is None and (self._starting is None or self._starting.done()):
            self.handed_over_s = time.monotonic() - self._copied_s
            try:
                self._upload = self._hand_over()
            except Exception as error:  # noqa: BLE001  as it would come from the future
                self._upload = Future()
                self._upload.set_exception(error)
            self._upload.add_done_callback(self._end)

    @property
    def is_done(self) -> bool:
        self.poll()
        return self._upload is not None and self._upload.done()

    @property
    def what_blocked(self) -> str:
        """Of the first save, for the log."""
        if self._starting is None:
            return self.copied.text
        return f"{self.copied.text}, {self.handed_over_s:.1f} s until the process had started"

    def result(self) -> SaveReport:
        """Wait for the commit.

        Raises:
            UnavailableError: it was not committed.
        """
        if self._upload is None and self._starting is not None:
            self._starting.exception()
        self.poll()
        assert self._upload is not None
        error = self._upload.exception()
        if error is not None:
            raise UnavailableError(self._reason(error)) from error
        report: SaveReport = getattr(self._upload.result(), REPORT)
        return report

    def _reason(self, error: BaseException) -> str:
        cause = root_cause(error)
        is_of_content = "pickle" in cause.lower()
        return (is_of_content and refused_entry(self.copied.state, _pickled)) or cause

    def _end(self, _: Future[Any]) -> None:
        self.save_s = time.monotonic() - self._began_s


class Saver:
    """Copies the state of this rank, and has DCP write it.

    Args:
        use_process: write in a process, if there is a process group; else in a thread.
        sigterm_delay_s: what that process lives on after SIGTERM.

    Raises:
        UnavailableError: this torch's DCP cannot save without a process group's collectives.
        UsageError: the process group has no backend for the CPU.
    """

    def __init__(self, members: Membership, *, use_process: bool, sigterm_delay_s: float) -> None:
        accepted = inspect.signature(dcp.async_save).parameters
        if not {"no_dist", "async_stager", "async_checkpointer_type"} <= set(accepted):
            raise UnavailableError.of(
                "checkpoint.Manager", torch.__version__, "a torch whose dcp.async_save has no_dist",
                "Install torch 2.9 or newer.",
            )  # fmt: skip
        quiet_dcp()
        self._members = members
        self._copier = StateCopier()
        self._urgent = torch.zeros(1, dtype=torch.uint8).share_memory_()
        self._started: Future[Any] | None = None
        if members.has_group and use_process:
            self._started = self._start_process(sigterm_delay_s)

    @property
    def wants_memory(self) -> bool:
        return self._copier.wants_memory

    def prepare(self, state: Any) -> None:
        """Make memory for copies of ``state`` ready in a thread."""
        self._copier.prepare(state)

    def begin(self, context: SavePlanContext, state: dict[str, Any]) -> RunningSave:
        """Copy ``state``, and go on; the copy is DCP's until the save has ended. A process that is
        still starting gets it later.

        Raises:
            UnavailableError: an entry of ``state`` cannot be copied.
        """
        self._urgent.zero_()
        began_s = time.monotonic()
        with section("checkpoint_stage", kind="checkpoint"):
            copied = self._copier.copy(state)
        operation = Operation(replace(context, urgent=self._urgent))
        is_starting = copied.is_shared and self._started is not None and not self._started.done()
        running = RunningSave(
            context,
            copied,
            lambda: self._hand_over(operation, copied),
            self._started if is_starting else None,
            began_s,
        )
        running.poll()
        return running

    def hurry(self) -> None:
        """Write the running save as fast as it goes: somebody waits for it."""
        self._urgent.fill_(1)

    def close(self) -> None:
        if self._started is not None and self._started.done() and not self._started.exception():
            with contextlib.suppress(Exception):  # it has died
                self._send_nothing(0.0).result(_CLOSE_S)
        self._copier.close()

    def _hand_over(self, operation: Operation, copied: StateCopy) -> Future[Any]:
        by_process = copied.is_shared and self._has_process()
        return _async_save(
            copied.state,
            AsyncCheckpointerType.PROCESS if by_process else AsyncCheckpointerType.THREAD,
            storage_writer=CommittingWriter(operation),
            planner=ExchangingPlanner(operation),
        )

    def _has_process(self) -> bool:
        """Whether it runs; it may not have started, or was killed since."""
        if self._started is None or self._started.exception() is not None:
            return False
        pid = getattr(self._started.result(), WRITER_PID)
        if not _has_ended(pid):
            return True
        self._started = None
        _LOG.warning("checkpoints: the process that writes them (%d) has died, a thread does", pid)
        return False

    def _start_process(self, sigterm_delay_s: float) -> Future[Any]:
        """Before it is needed: it takes seconds, and its start is a collective."""
        group = torch.distributed.group.WORLD
        if torch.device("cpu") not in group._device_types:  # noqa: SLF001  as DCP checks it
            raise UsageError.of(
                "checkpoint.Manager", torch.distributed.get_backend(), "a backend for the CPU too",
                "Call init_process_group('cpu:gloo,cuda:nccl').",
            )  # fmt: skip
        started = self._send_nothing(sigterm_delay_s)
        started.add_done_callback(_warn_if_failed)
        return started

    def _send_nothing(self, sigterm_delay_s: float) -> Future[Any]:
        writer = NothingWriter(sigterm_delay_s)
        return _async_save({}, AsyncCheckpointerType.PROCESS, storage_writer=writer)


class NothingWriter(FileSystemWriter):  # type: ignore[misc]
    """Writes nothing: starts DCP's dedicated process before it is needed, and sets how it ends.

    Args:
        sigterm_delay_s: what the process lives on after SIGTERM, for a scheduler may send it to all
            processes of a training, which then saves; 0: nothing.
    """

    def __init__(self, sigterm_delay_s: float) -> None:
        super().__init__(os.devnull)
        self._pid = os.getpid()
        self._sigterm_delay_s = sigterm_delay_s

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self._pid:
            quiet_dcp()
            logging.getLogger().setLevel(logging.WARNING)
            step_back()
            _delay_sigterm(self._sigterm_delay_s)

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ARG002 (DCP's signature)
        from torch.futures import Future

        future: Any = Future()
        future.set_result([])
        return future

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:  # noqa: ARG002
        setattr(metadata, WRITER_PID, os.getpid())


def _delay_sigterm(delay_s: float) -> None:
    """The alarm ends the process by its default action."""
    if delay_s > 0.0:
        signal.signal(
            signal.SIGTERM, lambda *_: signal.setitimer(signal.ITIMER_REAL, delay_s) and None
        )
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Copied(dcp.staging.AsyncStager):  # type: ignore[misc]
    """DCP's stager of a state that is copied."""

    @property
    def should_synchronize_after_execute(self) -> bool:
        return False

    def stage(self, state_dict: Any, **_: Any) -> Any:
        return state_dict


def _async_save(state: dict[str, Any], kind: Any, **options: Any) -> Future[Any]:
    sent: Any = dcp.async_save(
        state,
        async_checkpointer_type=kind,
        async_stager=_Copied(),
        no_dist=True,
        **options,
    )
    if isinstance(sent, dcp.state_dict_saver.AsyncSaveResponse):
        sent = sent.upload_completion
    future: Future[Any] = sent
    return future


def _has_ended(pid: int) -> bool:
    """Of a child, also one that nobody has waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return True


def _pickled(value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        pickle.dumps(value)


def _warn_if_failed(started: Future[Any]) -> None:
    error = started.exception()
    if error is not None:
        _LOG.warning(
            "checkpoints: the process that writes them did not start, so a thread does: %s. "
            'Keep the training under if __name__ == "__main__":',
            error,
        )
