"""torch.profiler, driven by the begin of each step, in the thread of the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.model.operator_tables import (
    OUTSIDE,
    OperatorTable,
    OperatorTime,
    costliest_operators,
)
from otel_straggler.profiles.settings import FLAGS, ProfileSettings

_LOG = logging.getLogger("otel_straggler")
_STEP_EVENT: Final = "ProfilerStep"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The steps that were recorded, with torch's profiler that has stopped."""

    profiler: Any
    first_step: int
    last_step: int
    n_steps: int


class StepRecording:
    """Profiles steps by the schedule of ``settings``. From ``open()`` to its end it is the only one
    of the process: torch has one profiler at a time.

    Args:
        on_recorded: called in the thread of the loop as soon as a profile has stopped.
        why_not: called there before one begins; why it must not, or empty.
    """

    def __init__(
        self,
        settings: ProfileSettings,
        on_recorded: Callable[[Recorded], None],
        why_not: Callable[[], str] = str,
    ) -> None:
        self._settings = settings
        self._on_recorded = on_recorded
        self._why_not = why_not
        self._profiler: Any = None
        self.steps_begun = 0
        self._recorded: list[int] = []
        self._cycles = 0
        self.why_ended = ""
        self.has_ended = False

    def open(self) -> str:
        """Begin with the next step; returns why it cannot, or an empty text."""
        if _OPEN:
            return "another profile of this package is open"
        _OPEN.append(self)
        return ""

    def begin_step(self, number: int) -> None:
        """Start, go on, or stop: step ``number`` begins, so the one before has ended."""
        if self.has_ended:
            return
        if self._profiler is not None:
            self._go_on()
        at = self.steps_begun - self._settings.skip_first
        self.steps_begun += 1
        if self.has_ended or at < 0:
            return
        place = at % self._settings.cycle
        if place == self._settings.wait and self._profiler is None:
            self._start()
        if self._profiler is not None and place >= self._settings.wait + self._settings.warmup:
            self._recorded.append(number)

    @property
    def is_first_recorded(self) -> bool:
        """Whether the open step is the first of a profile."""
        return self._profiler is not None and len(self._recorded) == 1

    def close(self) -> None:
        """End; what was recorded so far is handed on. Safe to call twice."""
        if self._profiler is not None:
            self._stop()
        self._end()

    def _go_on(self) -> None:
        if len(self._recorded) < self._settings.active:
            self._profiler.step()
            return
        self._stop()
        self._cycles += 1
        if self._cycles == self._settings.repeat:
            self._end()

    def _start(self) -> None:
        self.why_ended = self._why_not() or why_torch_cannot()
        if self.why_ended:
            _LOG.warning("no steps are profiled: %s", self.why_ended)
            self._end()
            return
        profiler = new_profiler(self._settings)
        profiler.start()
        self._profiler, self._recorded = profiler, []

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        if self._recorded:
            first, last = self._recorded[0], self._recorded[-1]
            self._on_recorded(Recorded(profiler, first, last, len(self._recorded)))

    def _end(self) -> None:
        self.has_ended = True
        if self in _OPEN:
            _OPEN.remove(self)


_OPEN: Final[list[StepRecording]] = []


def is_open() -> bool:
    """Whether a profile of this package is being recorded, or waits for its next steps."""
    return bool(_OPEN)


def why_torch_cannot() -> str:
    """Why torch's profiler cannot begin in this thread; empty if it can."""
    import torch

    is_on = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    is_on = is_on or torch.autograd._profiler_enabled()  # noqa: SLF001  no public one
    return "torch.profiler is at work already" if is_on else ""


def new_profiler(settings: ProfileSettings) -> Any:
    """torch's profiler for one cycle: ``warmup`` steps, then ``active`` ones. Not started."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    known: dict[str, Any] = {name: True for name in FLAGS if getattr(settings, name)}
    if settings.with_stack:  # without, no stack is exported: pytorch#100253
        known["experimental_config"] = torch._C._profiler._ExperimentalConfig(verbose=True)  # noqa: SLF001
    once = schedule(wait=0, warmup=settings.warmup, active=settings.active, repeat=1)
    return profile(activities=activities, schedule=once, **known)


def operators_of(recorded: Recorded, rank: int) -> OperatorTable:
    """The operators of all recorded steps together. Cost: O(events), for a thread of its own."""
    by_name: dict[str, OperatorTime] = {}
    for each in recorded.profiler.key_averages():
        name = OUTSIDE if each.key.startswith(_STEP_EVENT) else str(each.key)
        operator = OperatorTime(
            name,
            int(each.count),
            max(0.0, float(each.self_cpu_time_total) * 1e-6),
            0.0 if _is_annotation(each) else max(0.0, _device_us(each) * 1e-6),
        )
        if operator.host_s or operator.device_s:
            by_name[name] = _sum(by_name.get(name), operator)
    return costliest_operators(
        by_name.values(),
        rank=rank,
        first_step=recorded.first_step,
        n_steps=recorded.n_steps,
    )


def _sum(before: OperatorTime | None, more: OperatorTime) -> OperatorTime:
    if before is None:
        return more
    return OperatorTime(
        more.name,
        before.calls + more.calls,
        before.host_s + more.host_s,
        before.device_s + more.device_s,
    )


def _is_annotation(each: Any) -> bool:
    """Whether it spans kernels of others, as ``record_function`` does."""
    return bool(getattr(each, "is_user_annotation", False)) or each.key.startswith(_STEP_EVENT)


def _device_us(each: Any) -> float:
    """Until torch 2.3 it is called CUDA."""
    return float(getattr(each, "self_device_time_total", None) or _cuda_us(each))


def _cuda_us(each: Any) -> float:
    if hasattr(each, "self_device_time_total"):
        return 0.0
    return float(getattr(each, "self_cuda_time_total", 0.0))
