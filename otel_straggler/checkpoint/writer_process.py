"""DCP's asynchronous save, in its dedicated process where there is a process group."""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

import torch
from torch.distributed import checkpoint as dcp

from otel_straggler.checkpoint.membership import Membership
from otel_straggler.checkpoint.saving import (
    REPORT,
    CommittingWriter,
    ExchangingPlanner,
    NothingWriter,
    Operation,
    SavePlanContext,
    SaveReport,
    quiet_dcp,
    root_cause,
)
from otel_straggler.errors import UnavailableError, UsageError

_LOG = logging.getLogger("otel_straggler")
_CLOSE_S: Final = 5.0


class RunningSave:
    """A save whose state is copied.

    Args:
        began_s: monotonic, before that.

    Attributes:
        is_to_persist: it is copied from the nodes to the persistent folder once it has ended.
        blocking_s: that it stopped the training; save_s: from its begin to its end.
    """

    def __init__(self, context: SavePlanContext, upload: Future[Any], began_s: float) -> None:
        self.context = context
        self.is_to_persist = False
        self.blocking_s = 0.0
        self.save_s = 0.0
        self._began_s = began_s
        self._upload = upload
        upload.add_done_callback(self._end)

    @property
    def is_done(self) -> bool:
        return self._upload.done()

    def result(self) -> SaveReport:
        """Wait for the commit.

        Raises:
            UnavailableError: it was not committed.
        """
        error = self._upload.exception()
        if error is not None:
            raise UnavailableError(root_cause(error)) from error
        report: SaveReport = getattr(self._upload.result(), REPORT)
        return report

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
                "Install a newer torch.",
            )  # fmt: skip
        quiet_dcp()
        self._members = members
        self._stager = _stager()
        self._urgent = torch.zeros(1, dtype=torch.uint8).share_memory_()
        self._kind = dcp.state_dict_saver.AsyncCheckpointerType.THREAD
        self._started: Future[Any] | None = None
        if members.has_group and use_process:
            self._started = self._start_process(sigterm_delay_s)

    def begin(self, context: SavePlanContext, state: dict[str, Any]) -> RunningSave:
        """Copy ``state``, and go on; the copy is DCP's until the save has ended. The first waits
        until the process has started: two that start at once would be two processes."""
        if self._started is not None and self._started.exception() is not None:
            self._started = None
            self._kind = dcp.state_dict_saver.AsyncCheckpointerType.THREAD
        self._urgent.zero_()
        operation, began_s = Operation(replace(context, urgent=self._urgent)), time.monotonic()
        answer = dcp.async_save(
            state,
            storage_writer=CommittingWriter(operation),
            planner=ExchangingPlanner(operation),
            async_checkpointer_type=self._kind,
            async_stager=self._stager,
            no_dist=True,
        )
        if isinstance(answer, dcp.state_dict_saver.AsyncSaveResponse):
            answer.staging_completion.result()
            answer = answer.upload_completion
        return RunningSave(context, answer, began_s)

    def hurry(self) -> None:
        """Write the running save as fast as it goes: somebody waits for it."""
        self._urgent.fill_(1)

    def close(self) -> None:
        if self._started is not None and self._started.done() and not self._started.exception():
            with contextlib.suppress(Exception):  # it has died
                self._send_nothing(0.0).result(_CLOSE_S)
        self._stager.close()

    def _start_process(self, sigterm_delay_s: float) -> Future[Any]:
        """Before it is needed: it takes seconds, and its start is a collective."""
        group = torch.distributed.group.WORLD
        if torch.device("cpu") not in group._device_types:  # noqa: SLF001  as DCP checks it
            raise UsageError.of(
                "checkpoint.Manager", torch.distributed.get_backend(), "a backend for the CPU too",
                "Call init_process_group('cpu:gloo,cuda:nccl').",
            )  # fmt: skip
        self._kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS
        started = self._send_nothing(sigterm_delay_s)
        started.add_done_callback(_warn_if_failed)
        return started

    def _send_nothing(self, sigterm_delay_s: float) -> Future[Any]:
        sent: Any = dcp.async_save(
            {},
            storage_writer=NothingWriter(sigterm_delay_s),
            async_checkpointer_type=self._kind,
            async_stager=self._stager,
            no_dist=True,
        )
        if isinstance(sent, dcp.state_dict_saver.AsyncSaveResponse):
            sent = sent.upload_completion
        future: Future[Any] = sent
        return future


def _stager() -> Any:
    """Copies into memory that the dedicated process shares; pinned where that is faster."""
    on_gpu = torch.cuda.is_available()
    options = dcp.staging.StagingOptions(
        use_pinned_memory=on_gpu,
        use_shared_memory=True,
        use_async_staging=False,
        use_non_blocking_copy=on_gpu,
    )
    return dcp.staging.DefaultStager(options)


def _warn_if_failed(started: Future[Any]) -> None:
    error = started.exception()
    if error is not None:
        _LOG.warning(
            "checkpoints: the process that writes them did not start, so a thread does: %s. "
            'Keep the training under if __name__ == "__main__":',
            error,
        )
