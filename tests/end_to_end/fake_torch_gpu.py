"""A GPU that real models of torch compute on, for rank programs: the fakes of driver and libcupti.

``use_fake_gpu()`` has torch say that CUDA is in use, and everything stays on the CPU; a model made
of ``Block`` launches kernels of the fake in forward and backward.
"""

import os
import sys
import time
from pathlib import Path

import torch

from otel_straggler import gpu_timing
from otel_straggler.client.gpu.owner import GpuTiming
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.kernels import KERNELS

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.native.fake_cuda import FakeCuda
from tests.native.fake_cupti import FakeGpu

KERNEL_NS = 100_000
GPU = FakeGpu(Path(os.environ["OTEL_STRAGGLER_CUPTI"]))
DRIVER = FakeCuda(Path(os.environ["FAKE_CUDA_DRIVER"]))


class Work:
    """How much there is to do: ``factor`` of what it was at first, and launches so far."""

    factor = 1.0
    launches = 0


def use_fake_gpu() -> None:
    DRIVER.traced_by(GPU)
    DRIVER.set("busy", 1)  # what is launched is done at once
    torch._C._cuda_getCurrentRawStream = DRIVER.current_stream
    torch.version.cuda = "13.0"  # type: ignore[assignment]
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
    Surroundings.driver_path = lambda self: DRIVER.path  # type: ignore[method-assign]


def record_one_step_of(every: int) -> None:
    """Of a session: instead of as many as their cost allows, of which the fake has none."""
    GpuTiming._rate = lambda self: (every, every)  # type: ignore[method-assign]


def await_kernels() -> None:
    """Until kernels are recorded; nothing that matters is launched before."""
    until_s = time.monotonic() + 30
    while not gpu_timing().uses_cupti:
        assert time.monotonic() < until_s, gpu_timing()
        time.sleep(0.01)


def launch(name: str, length_ns: int) -> None:
    Work.launches += 1
    GPU.launch(name, length_ns)
    DRIVER.launch(length_ns)


class _Kernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        launch("gemm", int(KERNEL_NS * Work.factor))
        launch("gelu", int(KERNEL_NS / 4 * Work.factor))
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        launch("gemm_backward", int(2 * KERNEL_NS * Work.factor))
        launch("ncclDevKernel_AllReduce_Sum_f32", int(KERNEL_NS * (3 - 2 * Work.factor)))
        return gradient.clone()


class Block(torch.nn.Module):
    """A linear layer whose kernels are the fake's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return _Kernels.apply(self.layer(x))


class Sgd(torch.optim.SGD):
    """With a kernel in its step, at whose end the host reads the loss: a step takes some time."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        launch("sgd", int(KERNEL_NS / 2 * Work.factor))
        time.sleep(0.004)
        return loss


def model() -> torch.nn.Module:
    """Each kernel but the optimizer's runs six times a step, so that one sampled step is enough."""
    return torch.nn.Sequential(*(Block() for _ in range(6)))


def counts() -> dict[str, int]:
    """Of the timer, once it has read all that has ended, and launches."""
    KERNELS.flush()
    return {**gpu_timing().counts, "launches": Work.launches}
