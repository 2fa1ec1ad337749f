"""``Manager``: saves a training's state when it is worth it, and restores the newest whole one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from otel_straggler.checkpoint import folder as folders
from otel_straggler.checkpoint.agreement import Agreement, Decision
from otel_straggler.checkpoint.emergency import RequestFile, SigtermWatch
from otel_straggler.checkpoint.files import folder_of, is_remote
from otel_straggler.checkpoint.layout import LocalTier
from otel_straggler.checkpoint.membership import Membership, join
from otel_straggler.checkpoint.reports import log_saved, report_restored, report_saved
from otel_straggler.checkpoint.restoring import Restored, restore
from otel_straggler.checkpoint.schedule import Schedule
from otel_straggler.client.checkpoints import CheckpointTotals, add_save, record_past
from otel_straggler.client.steps import phase
from otel_straggler.detect.slow_writers import SlowWriters
from otel_straggler.errors import ConfigError, StragglerError, UnavailableError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_straggler.checkpoint.persisting import Persisting
    from otel_straggler.checkpoint.writer_process import RunningSave, Saver

_LOG = logging.getLogger("otel_straggler")
_ANSWER_S: Final = 5.0
_DIRECT: Final = "schedule, past the local tier"
"""The reason of a save to the persistent folder after one to the nodes has failed."""


class Manager:
    """Saves every so many steps or seconds, or as often as costs least; restores; all ranks of the
    training make one, after ``init_process_group()``.

        with Manager("checkpoints", interval="optimal") as manager:
            start = manager.restore(state) or 0
            for step in range(start + 1, steps + 1):
                ...
                manager.step(step, state)
                if manager.should_stop:
                    break

    A save stops the training while its state is copied; a process of DCP's writes it. That process
    imports the script again: keep the training under ``if __name__ == "__main__":``.

    Args:
        folder: for checkpoints alone, on a file system that all ranks write to; with ``local`` also
            a URL for fsspec.
        local: also save on the nodes, more often, with copies on other nodes. What is due for
            ``folder`` is saved there first, and copied while the training goes on.
        every_steps, every_s, interval: when to save: give one, or none to save on request alone.
            "optimal" is Daly's interval from measured costs and failures.
        keep: complete checkpoints that are kept.
        timeout_s: a save that takes longer is given up.
        emergency_s: from SIGTERM or an emergency request until the save must be committed; keep it
            below the time after which the scheduler kills.
        mtbf_s: mean seconds between failures of the run, where known; else estimated.
        handle_sigterm: save before SIGTERM ends this process.
        use_process: write in a process of DCP's; without, in a thread, which slows the training.
        request_file: a path; a file that appears there asks for a save. Default: the variable
            OTEL_STRAGGLER_CHECKPOINT_REQUEST_FILE.

    Raises:
        ConfigError: an argument is wrong.
        InputError: ``folder`` holds something else, or that of ``local`` another run.
        UsageError: another training writes to it, or the process group cannot be used.
        UnavailableError: torch lacks what is needed, or what opens the URL is not installed.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        local: LocalTier | None = None,
        every_steps: int | None = None,
        every_s: float | None = None,
        interval: Literal["optimal"] | None = None,
        keep: int = 2,
        timeout_s: float = 600.0,
        emergency_s: float = 25.0,
        mtbf_s: float | None = None,
        handle_sigterm: bool = True,
        use_process: bool = True,
        request_file: str | Path | None = None,
    ) -> None:
        for name, value in (("keep", keep), ("timeout_s", timeout_s), ("emergency_s", emergency_s)):
            if value <= 0:
                raise ConfigError.of(f"Manager({name}=...)", value, "a number above 0", _LEAVE_OUT)
        self._schedule = Schedule(every_steps, every_s, interval, mtbf_s)
        self._is_scheduled = any((every_steps, every_s, interval, local))
        from otel_straggler.checkpoint.writer_process import Saver

        self._folder, self._local = folder_of(folder), local
        if local is None and is_remote(self._folder):
            raise ConfigError.of(
                "Manager(folder)", folder, "a path, or local= too",
                "Files are written to a node, and copied from there to a URL.",
            )  # fmt: skip
        self._keep, self._timeout_s, self._emergency_s = keep, timeout_s, emergency_s
        self._members: Membership = join(self._folder, local)
        self._saver: Saver = Saver(
            self._members,
            use_process=use_process,
            sigterm_delay_s=emergency_s if handle_sigterm else 0.0,
        )
        self._running: RunningSave | None = None
        self._persisting: Persisting | None = None
        self.restored: Restored | None = None
        self._is_thin = False
        self._has_saved = False
        self._slow_writers = SlowWriters()
        self._agreement = Agreement(
            self._members.address.under("steps"),
            self._members.rank,
            self._members.world_size,
            _ANSWER_S,
        )
        self._schedule.begin(self._members)
        self._is_closed = False
        self._pid = os.getpid()
        self.should_stop = False
        self._sigterm = SigtermWatch(self._end_with_save, emergency_s)
        if handle_sigterm:
            self._sigterm.install()
        self._file = RequestFile(request_file, self._save_for_agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(is_clean=error is None)

    def step(self, step: int, state: Any) -> None:
        """Say that ``step`` is done, on every rank; saves ``state`` if it is time.

        Never raises for a save that fails: it is logged, and the checkpoint before stays.

        Args:
            step: the number of the step, which only grows.
            state: what to save, as DCP's ``save`` takes it, or a function that returns it.
        """
        if self._is_closed:
            raise UsageError.of("Manager.step()", step, "a manager that is open", "Make a new one.")
        self._collect(wait=False)
        is_due = self._schedule.is_due_at_step(step)
        if is_due or self._is_due_on_nodes(step):
            what = f"step {step}"
            self._save(step, state, "schedule", self._members.ranks, what, is_to_persist=is_due)
        if self._members.is_first and self._is_idle() and self._schedule.is_due_now():
            self._agreement.request("schedule")
        decision = self._agreement.reach(step)
        if decision is not None:
            self._save_as_decided(step, state, decision)
        if self._saver.wants_memory and self._is_scheduled:
            self._saver.prepare(state)

    def request_save(self, reason: str = "request") -> None:
        """Have all ranks that live save at their next common step. From any thread."""
        self._agreement.request(reason, time.time() + self._emergency_s)

    def save(self, step: int, state: Any) -> Path | None:
        """Save now, on every rank at the same step; returns the checkpoint once it is committed, or
        None if it failed."""
        self._save(step, state, "call", self._members.ranks, f"call {step}")
        return self._collect(wait=True)

    def restore(self, state: Any, step: int | None = None) -> int | None:
        """Load the newest complete checkpoint whose hashes hold into ``state``, on every rank.

        Args:
            step: this one instead of the newest.

        Returns:
            The step that it was saved at; None if there is none.

        Raises:
            InputError: there is none of ``step``, or what it holds does not fit ``state``.
            UnavailableError: another rank has failed, or a file was lost while it was read.
        """
        self._collect(wait=True)
        with phase("checkpoint"):
            self.restored = restore(self._members, state, step, self._timeout_s)
        if self.restored is None:
            return None
        self._is_thin = self.restored.is_thin
        report_restored(self.restored, is_first=self._members.is_first)
        return self.restored.step

    def wait(self) -> Path | None:
        """Wait for a running save; returns its checkpoint, or None."""
        return self._collect(wait=True)

    def close(self, *, is_clean: bool = True) -> None:
        """Wait for a running save, and let others write to the folder. Safe to call twice, and in a
        forked child, where it does nothing."""
        if self._is_closed or os.getpid() != self._pid:
            return
        with contextlib.suppress(StragglerError):
            self._collect(wait=True)
        self._is_closed = True
        self._file.close()
        self._agreement.close()
        self._schedule.end(is_clean=is_clean)
        self._saver.close()
        self._members.leave()
        self._sigterm.close()

    def _save_for_agent(self, reason: str, stuck: tuple[int, ...]) -> None:
        """A rank may be ended soon, and a save that is running must not be spread any longer."""
        self._saver.hurry()
        self._agreement.request(reason, time.time() + self._emergency_s, without=stuck)

    def _end_with_save(self) -> None:
        """SIGTERM has come."""
        self._agreement.request("preemption", time.time() + self._emergency_s, is_end=True)

    def _save_as_decided(self, step: int, state: Any, decision: Decision) -> None:
        what = f"request {decision.number}"
        is_direct = decision.reason == _DIRECT
        self._save(step, state, decision.reason, decision.ranks, what, is_direct=is_direct)
        is_urgent = decision.deadline_unix_s or decision.is_end
        if is_urgent and self._collect(wait=True) is not None:
            self._file.answer()
        if decision.is_end:
            self.should_stop = True
            self._sigterm.end()

    def _save(
        self,
        step: int,
        state: Any,
        reason: str,
        ranks: tuple[int, ...],
        what: str,
        *,
        is_to_persist: bool = True,
        is_direct: bool = False,
    ) -> None:
        """Args:
        is_to_persist: copy it from the nodes to the persistent folder.
        is_direct: save there at once.
        """
        with phase("checkpoint"):
            self._collect_save(wait=True)  # it still has the copies
            began_s = time.monotonic()
            name = folders.name_of(step, f"{self._members.session} {what}")
            content = state() if callable(state) else state
            context = self._members.context(
                name, step, reason, ranks, self._timeout_s, is_direct=is_direct
            )
            if reason == "schedule" and self._local is None:  # on nodes: what is late is lost
                context = replace(context, spread_s=self._schedule.spread_s(self._timeout_s))
            try:
                self._running = self._saver.begin(context, content)
            except Exception as error:  # noqa: BLE001  the training goes on
                self._log_failure(step, error)
                return
        self._running.blocking_s = time.monotonic() - began_s
        self._running.is_to_persist = is_to_persist and self._local is not None and not is_direct
        if is_to_persist:
            self._schedule.begun()

    def _is_due_on_nodes(self, step: int) -> bool:
        """Also at the first step after a restore from fewer copies than there should be."""
        if self._local is None:
            return False
        is_thin, self._is_thin = self._is_thin, False
        return is_thin or step % self._local.every_steps == 0

    def _is_idle(self) -> bool:
        return self._running is None and self._persisting is None

    def _collect(self, *, wait: bool) -> Path | None:
        """What became of the running save, and of its copy to the persistent folder."""
        path = self._collect_save(wait=wait)
        return self._collect_persisted(wait=wait) or path

    def _collect_save(self, *, wait: bool) -> Path | None:
        running = self._running
        if running is None or not (wait or running.is_done):
            return None
        self._running = None
        self._saver.hurry()
        waits_from_s = time.monotonic()
        try:
            report = running.result()
        except UnavailableError as error:
            self._save_failed(running, str(error))
            return None
        running.blocking_s += time.monotonic() - waits_from_s
        report_saved(running, report, self._schedule)
        if running.is_to_persist:
            self._persist(running)
        elif running.context.folder == self._folder:
            self._schedule.measured(running.blocking_s, running.save_s)
        if self._members.is_first:
            log_saved(running, report, is_first_save=not self._has_saved)
            for slow in self._slow_writers.observe(report.write_s):
                _LOG.warning("checkpoints wait for a slow writer: %s", slow.text)
        self._has_saved = True
        self._prune(running.context.folder, report.path.name)
        return report.path

    def _save_failed(self, running: RunningSave, problem: str) -> None:
        """Nothing is left of it; what was to be persistent is saved past the local tier."""
        its = running.context
        self._log_failure(its.step, problem)
        add_save(CheckpointTotals(failures=1, step=its.step))
        if its.layout.leader(its.rank, its.ranks) == its.rank:
            folders.remove(folders.saving_path(its.folder, its.name))
        if not running.is_to_persist:
            return
        self._persist(running, problem)
        if self._members.is_first and not is_remote(self._folder):
            self._agreement.request(_DIRECT)

    def _persist(self, running: RunningSave, problem: str = "") -> None:
        from otel_straggler.checkpoint.persisting import Persisting

        self._collect_persisted(wait=True)
        self._persisting = Persisting(running, self._folder, self._members.session, problem)

    def _collect_persisted(self, *, wait: bool) -> Path | None:
        persisting = self._persisting
        if persisting is None or not (wait or persisting.is_done):
            return None
        waits_from_s = time.monotonic()
        try:
            result = persisting.result()
        except UnavailableError as error:
            self._log_failure(persisting.save.context.step, error)
            return None
        finally:
            self._persisting = None
        record_past("checkpoint_persist", result.start_unix_s, result.end_unix_s)
        persisting.save.blocking_s += time.monotonic() - waits_from_s
        persist_s = result.end_unix_s - result.start_unix_s
        self._schedule.measured(persisting.save.blocking_s, persisting.save.save_s + persist_s)
        if self._members.is_first:
            _LOG.info(
                "checkpoint of step %d: persistent after %.1f s more",
                persisting.save.context.step, persist_s,
            )  # fmt: skip
        self._prune(self._folder, result.path.name)
        return result.path

    def _prune(self, folder: Path, saved: str) -> None:
        is_local = self._local is not None and folder == self._members.local_folder
        if not (self._members.leads_node if is_local else self._members.is_first):
            return
        keep = self._local.keep if self._local is not None and is_local else self._keep
        spare = {saved}
        if self._persisting is not None:
            spare.add(self._persisting.save.context.name)
        with contextlib.suppress(OSError):
            folders.prune(folder, keep, spare)

    def _log_failure(self, step: int, error: BaseException | str) -> None:
        _LOG.warning("the checkpoint of step %d was not saved: %s", step, error)


_LEAVE_OUT: Final = "Leave it out for the default."
