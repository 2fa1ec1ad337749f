"""Mistakes of ours in the evaluation of a run: logged, counted, kept until it succeeds again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from otel_straggler.collector.runs.store import RunStore
from otel_straggler.model.failure import Failure, Stage, describe_error

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_MAX_LOGGED = 60


class RunGuard:
    """Keeps the failures of each run with the run. One thread owns it.

    Args:
        now_s: the collector's clock.

    Attributes:
        count: failures so far, over all runs.
    """

    def __init__(self, store: RunStore, now_s: Callable[[], float]) -> None:
        self._store = store
        self._now_s = now_s
        self.count = 0

    def attempt(
        self, run_id: str, group: str, stage: Stage, step: Callable[[], _Result]
    ) -> _Result | None:
        """What the step returns; None if it has failed."""
        try:
            result = step()
        except Exception as error:  # noqa: BLE001 - logged and counted; other runs go on
            self.failed(run_id, group, stage, error)
            return None
        self.succeeded(run_id, group, stage)
        return result

    def failed(self, run_id: str, group: str, stage: Stage, error: Exception) -> None:
        """Log the first of several alike, count each, and drop what the collector knows of it."""
        self.count += 1
        text, where = describe_error(error)
        run = self._store.runs.get(run_id)
        before = None if run is None else run.failures.get((group, stage))
        if before is None or (before.error, before.where) != (text, where):
            _log.error(
                "run %r: %s failed; it is tried again with the next steps, and other runs go on",
                run_id[:_MAX_LOGGED],
                stage,
                exc_info=error,
            )
        if run is None:
            return
        known = before or Failure(
            group=group, stage=stage, since_s=self._now_s(), count=0, error=text, where=where
        )
        run.failures[group, stage] = replace(known, count=known.count + 1, error=text, where=where)
        if stage in ("hangs", "timeouts"):
            self._store.restart_hangs(run_id, group)

    def succeeded(self, run_id: str, group: str, stage: Stage) -> None:
        run = self._store.runs.get(run_id)
        if run is None or run.failures.pop((group, stage), None) is None:
            return
        _log.warning("run %r: %s works again", run_id[:_MAX_LOGGED], stage)
