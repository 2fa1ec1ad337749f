"""A profile of some steps of this rank, which its collector has asked for."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from otel_straggler.client import process
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.model.operator_tables import MAX_REASON, operator_table_json
from otel_straggler.profiles.nsys import why_cupti_is_taken
from otel_straggler.profiles.recording import Recorded, StepRecording, operators_of
from otel_straggler.profiles.settings import FLAGS, ProfileSettings

_LOG = logging.getLogger("otel_straggler")
MAX_WAIT_S: Final = 900.0
"""For the steps; then the rank gives up."""
_WARMUP_STEPS: Final = 2
"""The first of them takes long: the profiler starts, on all ranks at once."""


class AskedProfile:
    """Profiles ``steps`` steps from ``first_step`` on, or from the next if that has begun, after
    two of warm-up, without shapes, memory and stacks.

    The loop records; the table of operators is made by who asks for the answer. While anything
    else uses CUPTI or torch's profiler, it does not begin, and says why.
    """

    def __init__(self, first_step: int, steps: int, rank: int) -> None:
        self._rank = rank
        self._begins_at = first_step - _WARMUP_STEPS
        self._ends_at_s = time.monotonic() + MAX_WAIT_S
        self._lock = threading.Lock()
        self._recorded: Recorded | None = None
        self._reason = ""
        nothing_else: dict[str, Any] = dict.fromkeys(FLAGS, False)
        settings = ProfileSettings(skip_first=0, warmup=_WARMUP_STEPS, active=steps, **nothing_else)
        self._recording = StepRecording(settings, self._keep, why_not_now)
        self._reason = why_not_here() or why_not_now() or self._recording.open()
        if self._reason:
            _LOG.warning("no steps are profiled for the collector: %s", self._reason)
        else:
            STEP_LISTENERS.add(self._begin_step)

    def answer(self) -> Mapping[str, Any] | None:
        """The JSON of an operator table, or a reason; None while steps are recorded. Cost: that of
        torch's averages, some 100 ms for a million events."""
        if not self._reason and self._recorded is None and time.monotonic() < self._ends_at_s:
            return None
        if not self._reason and self._recorded is None:
            self.give_up(f"its steps did not end within {MAX_WAIT_S:.0f} s")
        if self._recorded is None:
            return {"reason": self._reason[:MAX_REASON]}
        return operator_table_json(operators_of(self._recorded, self._rank))

    def give_up(self, why: str = "the rank has ended") -> None:
        """Record nothing further. A profiler that is at work stops when the next step begins."""
        with self._lock:
            self._reason = self._reason or why

    def _begin_step(self, number: int) -> None:
        """In the thread of the loop."""
        recording = self._recording
        if self._reason:
            recording.close()
        elif number >= self._begins_at:
            recording.begin_step(number)
            self._reason = recording.why_ended
        if recording.has_ended:
            STEP_LISTENERS.remove(self._begin_step)

    def _keep(self, recorded: Recorded) -> None:
        with self._lock:
            if not self._reason:
                self._recorded = recorded


def why_not_here() -> str:
    """Why this process has nothing to profile; empty if it has."""
    return "" if "torch" in sys.modules else "the process does not use torch"


def why_not_now() -> str:
    """Which other user of CUPTI is at work in this process; empty for none."""
    if process.gpu_timing().uses_cupti:
        return "kernels of this rank are timed by CUPTI (gpu_timing)"
    return why_cupti_is_taken(os.environ)
