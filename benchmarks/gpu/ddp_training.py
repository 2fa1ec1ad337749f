"""Training with DistributedDataParallel, in a world of one, and what DDP's own timers say of it."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.ways import _RECORD, Off, Timed
from benchmarks.gpu.workloads import Size, Training

NEVER = 10**9
"""A rate at which DDP times its first 10 iterations and no other."""
TIMED = 2


class DdpTraining(Training):
    """A model in DDP, whose gradients are averaged over one rank.

    Args:
        every: DDP times one iteration in so many.
    """

    def __init__(self, cuda: Any, size: Size, way: Off, every: int) -> None:
        super().__init__(cuda, size, way)
        dist = cuda.torch.distributed
        backend = "gloo" if cuda.is_fake else "nccl"
        if not dist.is_initialized():
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        self._model = cuda.torch.nn.parallel.DistributedDataParallel(self._model)
        self._model._set_ddp_runtime_logging_sample_rate(every)
        self._every = every
        self._steps = 0

    def step(self) -> None:
        """The same, and what our package reads of it."""
        super().step()
        self._steps += 1
        if self._every != NEVER and (self._steps - 1) % self._every == 0:
            self.numbers()

    def numbers(self) -> dict[str, int]:
        """DDP's, of the newest iteration that it has published."""
        result: dict[str, int] = self._model.logger._get_ddp_logging_data().ints_map
        return result


class Kernels(Timed):
    """Kernels by CUPTI, with what they took in each section."""

    def busy_ms(self) -> dict[int, list[float]]:
        """Of all runs so far by section, without communication; nothing can be timed after."""
        self.cuda.synchronize()
        self.timer.add(b"".join(self._ended))
        self._ended.clear()
        self.timer.flush()
        self.timer.flush()
        result: dict[int, list[float]] = {}
        for run in _RECORD.iter_unpack(self.timer.take_all(True)):
            section, (_, busy_ns, nccl_ns, _, state) = run[8], run[-5:]
            if state == TIMED:
                result.setdefault(section, []).append((busy_ns - max(0, nccl_ns)) / 1e6)
        return result
