"""DeepSpeed's flops profile of one step, where DeepSpeed is installed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from otel_straggler.model.operator_tables import FLOPS_SUFFIX
from otel_straggler.profiles.artifacts import Whose, name_of, reserve
from otel_straggler.profiles.recording import Recorded

_LOG = logging.getLogger("otel_straggler")


class FlopsProfile:
    """Counts the flops of the model's calls in one step at a time. Training goes on whatever
    DeepSpeed's profiler does."""

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler
        self._is_open = self._has_step = False

    def begin_step(self) -> None:
        self._end()
        self._is_open = self._try("start_profile")

    def end_step(self) -> None:
        """The step that was begun, if any, has ended."""
        if self._is_open and not self._has_step:
            self._has_step = self._try("stop_profile")
            self._is_open = self._has_step

    def write(self, folder: str, whose: Whose, recorded: Recorded) -> list[Path]:
        """The profile as text, as ``profiler_ds.txt``; nothing where no step was counted."""
        self.end_step()
        if not self._has_step:
            return []
        try:
            path = reserve(Path(folder), name_of(whose, recorded), FLOPS_SUFFIX)
        except OSError as error:
            _LOG.warning("profile: nothing can be written to %s: %s", folder, error)
            return []
        is_written = self._try(
            "print_model_profile", profile_step=recorded.first_step, output_file=str(path)
        )
        self._end()
        if not is_written:
            path.unlink(missing_ok=True)
        return [path] if is_written else []

    def close(self) -> None:
        """Take the hooks off the model. Safe to call twice."""
        self.end_step()
        self._end()

    def _end(self) -> None:
        if self._is_open:
            self._try("end_profile")
        self._is_open = self._has_step = False

    def _try(self, what: str, **options: Any) -> bool:
        try:
            getattr(self._profiler, what)(**options)
        except Exception as error:  # noqa: BLE001  training goes on
            _LOG.warning("profile: DeepSpeed's flops profiler failed in %s: %s", what, error)
            return False
        return True


def flops_profile(model: Any) -> FlopsProfile | None:
    """For a module or an engine of DeepSpeed; None without one, or without DeepSpeed."""
    if model is None:
        return None
    try:
        from deepspeed.profiling.flops_profiler import FlopsProfiler
    except ImportError:
        _LOG.info("no flops are counted: DeepSpeed is not installed")
        return None
    return FlopsProfile(FlopsProfiler(getattr(model, "module", model)))
