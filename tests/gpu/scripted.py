"""Timers and a GPU that do what a test says, and remember what they were asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from otel_straggler.client.gpu.owner import GpuTiming
from otel_straggler.client.gpu.reasons import Refusal
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.gpu.tiers import trouble_of
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.semconv import GpuTier


@dataclass
class ScriptedTimer:
    """A tier that refuses as told."""

    tier: GpuTier
    refusals: list[Refusal | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)
    native: Any = None
    hangs_s: float = 0.0
    is_proven: bool = True
    tier_meanwhile: GpuTier = "events"
    rates: list[tuple[int, int]] = field(default_factory=list)

    def set_rate(self, steps: int, runs: int) -> None:
        self.rates.append((steps, runs))

    def pause(self) -> None:
        self.calls.append("pause")

    def unpause(self) -> Refusal | None:
        self.calls.append("unpause")
        return None

    def give_way(self, deadline_ns: int) -> None:
        self.calls.append("give way")

    @property
    def about(self) -> str:
        return f"scripted {self.tier}"

    def prepare(self) -> Refusal | None:
        return None

    def start(self) -> Refusal | None:
        refusal = self.refusals.pop(0) if self.refusals else None
        self.calls.append("start" if refusal is None else "refuse")
        return refusal

    def stop(self, deadline_ns: int) -> None:
        self.calls.append("stop")

    def flush(self) -> None:
        self.calls.append("flush")
        time.sleep(self.hangs_s)

    def end(self) -> None:
        self.calls.append("end")

    def trouble(self) -> Refusal | None:
        return trouble_of(self.now, has_daemon=False)

    def counts(self) -> dict[str, int]:
        return dict(self.now)


@dataclass
class ScriptedGpu(Surroundings):
    """What a process has done with CUDA so far."""

    refusal: Refusal | None = None
    synchronized: list[int] = field(default_factory=list)
    hangs_s: float = 0.0

    def why_not_yet(self) -> Refusal | None:
        return self.refusal

    def device(self) -> int | None:
        return None if self.refusal else 3

    def synchronize(self, device: int) -> None:
        time.sleep(self.hangs_s)
        self.synchronized.append(device)


@dataclass
class Rig:
    """A GpuTiming over scripted timers, ticked by hand."""

    cupti: ScriptedTimer = field(default_factory=lambda: ScriptedTimer("cupti"))
    events: ScriptedTimer = field(default_factory=lambda: ScriptedTimer("events"))
    gpu: ScriptedGpu = field(default_factory=ScriptedGpu)
    now_s: float = 1000.0

    def begin(
        self, requested: str = "cupti", never: Refusal | None = None, **more: Any
    ) -> GpuTiming:
        self.timing = GpuTiming(
            settings(gpu_timing=requested, **more),
            never,
            surroundings=self.gpu,
            timers={"cupti": self.cupti, "events": self.events},
        )
        if self.timing._wanted != "off":
            self.timing._next_try_s = 0.0
        self.tick(0)
        return self.timing

    def tick(self, seconds: float = 1.0) -> tuple[str, str]:
        """Let time pass; tier and reason."""
        self.now_s += seconds
        self.timing.tick(self.now_s)
        return self.timing.described()


def settings(**more: Any) -> ClientSettings:
    nowhere = Endpoint(url="http://127.0.0.1:9")
    return ClientSettings(
        run_id="r", traces=nowhere, metrics=nowhere, **{"gpu_overhead": 0.01, **more}
    )


def torch_with_cuda() -> Any:
    """A torch of which only what says that CUDA is in use is there."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 0, synchronize=lambda device: None
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0"))
