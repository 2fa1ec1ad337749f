"""Fakes of DDP and its logger, which count and publish as torch's do, and trainings with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from otel_straggler import section, step
from otel_straggler.client.collectives import ddp_logger
from otel_straggler.client.collectives.ddp_logger import DdpTimers
from otel_straggler.client.collectives.ddp_sampling import LADDER
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.native_records import RECORD, TIMED_BY_EVENTS, NativeBatch
from otel_straggler.client.recording import RECORDER

MS = 1_000_000
READ_NS = 20_000
OWN = {"forward_compute_time": 30 * MS, "backward_compute_time": 50 * MS}
TIMES = {**OWN, "backward_comm_time": 20 * MS, "backward_compute_comm_overlap_time": 15 * MS}


@dataclass
class FakeLogger:
    """What DDP's logger in C++ publishes: of the newest iteration that was sampled."""

    ints_map: dict[str, Any] = field(default_factory=lambda: {"iteration": 0})
    reads: int = 0

    def _get_ddp_logging_data(self) -> FakeLogger:
        self.reads += 1
        clock = ddp_logger.perf_counter_ns
        if isinstance(clock, Clock):
            clock.now_ns += READ_NS
        return self


def fake_ddp() -> type[Any]:
    """A class of its own for each test, which counts as DDP does."""

    class FakeDdp:
        device_type = "cuda"
        require_backward_grad_sync = True

        def __init__(self) -> None:
            self.logger = FakeLogger()
            self.iteration = 0
            self.rate = LADDER[-1]
            self.times: dict[str, Any] = dict(TIMES)

        def _pre_forward(self, *inputs: Any, **kwargs: Any) -> Any:
            """Publishes the iteration before, if it was sampled, and begins the next."""
            if self.require_backward_grad_sync:
                n = self.iteration
                if 0 < n <= 10 or (n and n % self.rate == 0):
                    self.logger.ints_map = {"iteration": n, **self.times}
                self.iteration += 1
            return inputs, kwargs

        def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
            self.rate = rate

    return FakeDdp


@dataclass
class Fakes:
    ddp: type[Any]
    waits: Waits
    timers: DdpTimers
    is_grad_enabled: bool = True
    is_capturing: bool = False


class Clock:
    """Time passes by 1 µs a look, and by ``READ_NS`` a read, which is much of so short a step."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def train(fakes: Fakes, module: Any, steps: range, forward: str = "forward") -> None:
    for n in steps:
        with step(n):
            with section(forward):
                module._pre_forward("input", key=1)
            with section("backward"):
                assert fakes.waits.on_backward is not None
                fakes.waits.on_backward()


def again(fakes: Fakes, pre_forward: Any) -> None:
    """With another function of DDP's before forward."""
    fakes.timers.restore()
    fakes.ddp._pre_forward = pre_forward
    fakes.timers = DdpTimers(fakes.ddp, fakes.waits, lambda: True, lambda: False)


Span = tuple[str, str, int, int]
"""Name, name of the section around it, step, ns on the GPU."""


def spans() -> list[Span]:
    """Of DDP's timers. What the GPU took is also how long they last."""
    batch = RECORDER.drain()
    assert isinstance(batch, NativeBatch)
    states = [row[-1] for row in RECORD.iter_unpack(batch.block)]
    result = []
    for (frame, around, end_ns, *_), state in zip(batch, states, strict=True):
        if state != TIMED_BY_EVENTS:
            continue
        assert around is not None
        assert frame[3].step is not None
        result.append((frame[0].name, around[0].name, frame[3].step, end_ns - frame[2]))
    return result


def names(found: list[Span]) -> list[str]:
    return [name for name, *_ in found]
