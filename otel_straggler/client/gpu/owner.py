"""Switches GPU timing in this process: what is wanted, what can be had, what it costs.

Switching happens in a thread of its own; only a profiler that is about to begin, and a caller of
``set_gpu_timing()``, wait for it. Times are monotonic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from otel_straggler.client.gpu import CURRENT, mark_complete
from otel_straggler.client.gpu.overhead import Overhead
from otel_straggler.client.gpu.profilers import PROFILERS
from otel_straggler.client.gpu.reasons import (
    WITHOUT_GPU,
    GpuTimingState,
    Refusal,
    TierStatus,
)
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.gpu.tiers import CuptiTimer, EventsTimer, Ladder, Timer
from otel_straggler.client.recording import WHY_PYTHON
from otel_straggler.client.worker import LogOnce, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.semconv import GpuTier

AUTO_SAMPLES_KERNELS = False
"""Whether ``auto`` has kernel records in one step of N. On once a GPU has shown that a step takes
0.5 % longer with them at most (E3), 0.2 % after them (E6): docs/internals/gpu-measurements.md."""
AUTO_TIER: GpuTier = "cupti" if AUTO_SAMPLES_KERNELS else "events"
THREAD_NAME = "otel-straggler-tier"
_TICK_S = 1.0
_LONGEST_LOOK_S = 4.0
"""Between two looks whether CUDA is in use, once it has not been for a while."""
_IDLE_TICK_S = 60.0
"""While there is nothing to time, and nothing that could change that but a call."""
_YIELD_NS = 500_000_000
"""The longest wait of a profiler that is about to begin."""
_SET_S = 5.0
_LOG = logging.getLogger("otel_straggler")
KINETO = Refusal("kineto_active")
UNPROVEN = Refusal("unproven")


class GpuTiming:
    """GPU timing of one session."""

    def __init__(
        self,
        settings: ClientSettings,
        never: Refusal | None = None,
        *,
        surroundings: Surroundings | None = None,
        timers: Mapping[GpuTier, Timer] | None = None,
    ) -> None:
        requested = settings.gpu_timing
        self._is_auto = requested == "auto"
        self._wanted: GpuTier = AUTO_TIER if requested == "auto" else requested
        self._never = never
        self._runs_every: int | None = None
        self._is_always = settings.gpu_overhead <= 0
        self._surroundings = surroundings or Surroundings()
        self._timers = timers or {
            "cupti": CuptiTimer(settings.cupti_path, self._surroundings),
            "events": EventsTimer(self._surroundings),
        }
        self._ladder = Ladder(self._timers)
        self._settings_target = settings.gpu_overhead
        self._lock = threading.RLock()
        self._thread: Worker | None = None
        self._overhead = Overhead(settings.gpu_overhead, self._wake)
        self._status = TierStatus(self._asked())
        self._next_try_s: float | None = None
        self._looks = 0
        self._has_ended = False

    def start(self) -> None:
        if self._is_auto and self._never is not None:
            self._status.update("off", self._never, is_silent=True)
        elif self._wanted != "off":
            self._begin()

    def state(self) -> GpuTimingState:
        status = self._status
        timer = None if self._has_ended else self._ladder.timer
        if timer is not None:
            self._show()
        refusal = status.refusal
        return GpuTimingState(
            tier=status.tier,
            wanted=self._wanted,
            reason=status.reason,
            detail="" if refusal is None else refusal.message,
            since_s=status.since_s,
            overhead="; ".join(filter(None, (self._overhead.text, self._overhead.sampling.text))),
            interval=self._rate()[0] if timer is not None and timer.tier == "cupti" else 0,
            counts={} if timer is None else timer.counts(),
        )

    def described(self) -> tuple[str, str]:
        """Tier and reason. Cost: nothing."""
        return self._status.tier, self._status.reason

    def set(self, wanted: GpuTier | None) -> None:
        """Use this tier from now on, or the next one below that can be had; None: that of ``auto``.
        What was refused before is tried again."""
        with self._lock:
            if self._has_ended:
                return
            self._is_auto = wanted is None
            self._wanted = AUTO_TIER if wanted is None else wanted
            self._ladder.barred.clear()
            self._status.logged.clear()
            self._next_try_s = 0.0
        if self._thread is None:
            self._begin()
        assert self._thread is not None
        self._thread.do(lambda: self.tick(time.monotonic()), _SET_S)

    def sample_runs(self, every: int | None) -> None:
        """Have kernel records in each run of a section that its caller has sampled, which takes one
        of so many; None: in one step of as many as the overhead allows."""
        with self._lock:
            self._runs_every = every
            self._is_always = every == 1 or (every is None and self._settings_target <= 0)
            self._apply_rate()

    def _rate(self) -> tuple[int, int]:
        """One step, and one run outside of steps, of so many."""
        if self._is_always:
            return 1, 1
        if self._runs_every is not None:
            return 0, 1
        interval = self._overhead.sampling.value
        return interval, interval

    def _apply_rate(self) -> None:
        steps, runs = self._rate()
        CURRENT.is_every_step = steps == 1
        for timer in self._timers.values():
            timer.set_rate(steps, runs)
        self._overhead.watch_samples(steps if self._is_proven() else 0)

    def _is_proven(self) -> bool:
        timer = self._ladder.timer
        return timer is not None and timer.tier == "cupti" and timer.is_proven

    def yield_to_profiler(self) -> None:
        """Before torch.profiler prepares: CUPTI is for it alone until it has stopped."""
        with self._lock:
            timer = self._ladder.timer
            if self._has_ended or timer is None or timer.tier != "cupti":
                return
            self._switch(lambda: self._ladder.give_way(_YIELD_NS))
            self._overhead.disturb()
            self._status.update(timer.tier_meanwhile, KINETO)

    def profiler_has_stopped(self) -> None:
        self._wake()

    def tick(self, now_s: float) -> float:
        with self._lock:
            if not self._has_ended:
                self._evaluate(now_s)
            next_s, is_timing = self._next_try_s, self._ladder.timer is not None
        if is_timing:
            return now_s + _TICK_S
        return now_s + _IDLE_TICK_S if next_s is None else max(next_s, now_s + _TICK_S)

    def _evaluate(self, now_s: float) -> None:
        ladder = self._ladder
        if PROFILERS.are_active and ladder.tier == "cupti":
            return
        if ladder.timer is not None and self._trouble(now_s):
            return
        if self._next_try_s is not None and now_s >= self._next_try_s:
            self._climb(now_s)
        if ladder.timer is not None:
            self._follow_governor()
            self._tune()
            self._show()

    def _tune(self) -> None:
        """Kernel records as often as their cost allows."""
        if not self._is_proven() or self._is_always or self._runs_every is not None:
            return
        counts = self._ladder.timer.counts() if self._ladder.timer is not None else {}
        windows = counts.get("windows", 0)
        kernels = counts.get("events", 0) / windows if windows else 0.0
        self._overhead.sampling.choose(kernels)
        self._apply_rate()
        if why := self._overhead.sampling.too_much(kernels):
            self._leave("cupti", Refusal("governor", why), time.monotonic())

    def _show(self) -> None:
        """A tier is in use once it has given what it promises."""
        timer = self._ladder.timer
        if timer is None or not self._ladder.is_working:
            return
        if not timer.is_proven:
            self._status.update(timer.tier_meanwhile, UNPROVEN)
        elif self._status.refusal == UNPROVEN:
            self._status.update(timer.tier, self._status.refusals.get(timer.tier), timer.about)

    def _trouble(self, now_s: float) -> bool:
        """Whether the tier in charge was left."""
        timer = self._ladder.timer
        assert timer is not None
        refusal = timer.trouble() if self._ladder.is_working else None
        refusal = refusal or self._overhead.trouble(now_s)
        if refusal is not None and self._sample_instead(timer, refusal):
            return False
        if refusal is not None:
            self._leave(timer.tier, refusal, now_s)
        return refusal is not None

    def _sample_instead(self, timer: Timer, refusal: Refusal) -> bool:
        """Kernel records in every step cost too much: whether fewer may do."""
        if timer.tier != "cupti" or refusal.code != "governor" or not self._is_always:
            return False
        self._is_always, self._runs_every = False, None
        self._apply_rate()
        self._overhead.disturb()
        _LOG.warning(
            "%s; kernels are timed in one step of %d from now on", refusal.detail, self._rate()[0]
        )
        return True

    def _leave(self, tier: GpuTier, refusal: Refusal, now_s: float) -> None:
        """Bar this tier: the next one, if there is one."""
        self._ladder.barred[tier] = refusal
        self._climb(now_s)
        if refusal.retry_s is not None:
            self._ladder.barred.pop(tier, None)
            self._next_try_s = now_s + refusal.retry_s

    def _climb(self, now_s: float) -> None:
        before = self._ladder.timer
        refusal = self._why_not_yet()
        if refusal is not None:
            self._switch(self._ladder.leave)
        else:
            refusal = self._switch(lambda: self._ladder.climb(self._wanted))
        self._next_try_s = self._next_try(refusal, now_s)
        timer = self._ladder.timer
        if timer is not before:
            self._overhead.end()
            if timer is not None and timer.tier == "cupti":  # events have cost nothing, as measured
                self._overhead.begin()
        if refusal is None and self._ladder.tier != "cupti":
            refusal = self._asked()
        if timer is not None:
            self._status.refusals[timer.tier] = refusal
        if timer is not None and not timer.is_proven:
            self._status.update(timer.tier_meanwhile, UNPROVEN)
        else:
            about = "" if timer is None else timer.about
            is_no_news = self._is_auto and refusal is not None and refusal.code in WITHOUT_GPU
            self._status.update(self._ladder.tier, refusal, about, is_silent=is_no_news)
        self._apply_rate()

    def _next_try(self, refusal: Refusal | None, now_s: float) -> float | None:
        """When another try is worth it; None: not unless asked for. The longer a process has not
        used CUDA, the less often."""
        retry_s = None if refusal is None else refusal.retry_s
        if refusal is None or retry_s is None or refusal.code not in WITHOUT_GPU:
            self._looks = 0
            return None if retry_s is None else now_s + retry_s
        self._looks += 1
        return now_s + min(self._looks * retry_s, _LONGEST_LOOK_S)

    def _why_not_yet(self) -> Refusal | None:
        if self._wanted == "off":
            return None
        refusal = self._never or self._surroundings.why_not_yet()
        if refusal is None and self._wanted == "cupti":
            PROFILERS.install(self)
            if PROFILERS.are_active:
                return KINETO
        return refusal

    def _follow_governor(self) -> None:
        if self._overhead.wants_pause:
            self._switch(self._ladder.pause)
            return
        refusal = self._switch(self._ladder.resume)
        timer = self._ladder.timer
        assert timer is not None
        if refusal is not None:
            self._leave(timer.tier, refusal, time.monotonic())
        elif timer.is_proven:
            self._status.update(timer.tier, self._status.refusals.get(timer.tier), timer.about)

    def _asked(self) -> Refusal:
        return Refusal("auto" if self._is_auto else "asked")

    def _switch(self, change: Callable[[], Refusal | None] | Callable[[], None]) -> Refusal | None:
        refusal = change()
        self._overhead.mark_working(self._ladder.is_working)
        return refusal

    def _begin(self) -> None:
        self._next_try_s = 0.0
        log_error = LogOnce("GPU timing could not be looked after; training goes on")
        self._thread = Worker(self.tick, log_error, THREAD_NAME)
        self._thread.start()

    def _wake(self) -> None:
        if self._thread is not None and not self._has_ended:
            self._thread.wake()

    def settle(self, timeout_s: float, *, is_well: bool) -> bool:
        """Before the last records are sent: collect what the GPU has ended; if the process ends
        well, wait until it has ended all. Whether all is there. Never waits longer than
        ``timeout_s``, also for a GPU that hangs."""
        timer, thread = self._ladder.timer, self._thread
        if timer is None or thread is None or self._has_ended or not self._ladder.is_working:
            return False
        gpu = self._surroundings
        device = gpu.device() if is_well else None  # a setting of this thread, not of that
        is_complete = threading.Event()

        def collect() -> None:
            if device is not None:
                gpu.synchronize(device)
            timer.flush()
            timer.flush()  # what was full before the first one may come with the second
            if device is not None:
                is_complete.set()

        deadline_s = time.monotonic() + timeout_s
        if thread.do(collect, timeout_s):
            if is_complete.is_set():
                mark_complete()
                return True
        elif is_well and time.monotonic() >= deadline_s:
            _LOG.warning(
                "the GPU has not ended its work within %.1f s; its last times are missing",
                timeout_s,
            )
        return False

    def close(self, timeout_s: float) -> None:
        """Stop for good, within ``timeout_s`` also if the GPU hangs. cuptiFinalize is not called:
        it would end other profilers' sessions too."""
        deadline_s = time.monotonic() + timeout_s
        was_there, self._has_ended = not self._has_ended, True
        PROFILERS.uninstall(self)
        self._overhead.end()
        thread, self._thread = self._thread, None
        if not was_there or thread is None:
            return
        thread.do(self._ladder.leave, deadline_s - time.monotonic())
        thread.stop(max(0.0, deadline_s - time.monotonic()))
        self._status.update("off", Refusal("not_configured"), is_silent=True)

    def leave_to_parent(self) -> None:
        """In a forked child: nothing of CUDA is touched, here or by the parent's objects."""
        self._has_ended = True
        self._lock = threading.RLock()
        self._thread = None
        self._status.update("off", Refusal("forked"), is_silent=True)


def why_never(settings: ClientSettings) -> Refusal | None:
    """Why GPU times could not be sent by a session of these settings; None: they could."""
    return why_no_kernels() or (None if settings.traces.is_enabled else Refusal("not_sent"))


def why_no_kernels() -> Refusal | None:
    """Why kernels cannot be timed in this process; None: they can."""
    if WHY_PYTHON:
        return Refusal("no_extension", f"the native part of the package is not there: {WHY_PYTHON}")
    return None
