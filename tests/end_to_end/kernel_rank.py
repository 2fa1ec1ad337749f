"""One rank with a GPU that is a script: its kernels are counted while its sections run.

python kernel_rank.py ENDPOINT RANK WORLD_SIZE SLOW_RANK
"""

import math
import sys
import time
from typing import Any

import otel_straggler
from otel_straggler import semconv
from otel_straggler.client.kernels import KERNELS
from otel_straggler.client.recording import RECORDER

STEPS, SECTION_S = 150, 0.02
TIMES_NS = {
    ("gemm", "forward"): 200_000,
    ("gemm", "backward"): 400_000,
    ("softmax", "forward"): 50_000,
    ("ncclDevKernel_AllReduce", "backward"): 3_000_000,
}


class Gpu:
    """Counts the kernels of a step as a timer does; time on this rank, in compute, by a factor."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._steps = 0

    def step(self) -> None:
        self._steps += 1

    def take_kernels(self) -> list[Any]:
        steps, self._steps = self._steps, 0
        numbers = {name: n for n, (name, _) in enumerate(RECORDER.sections)}
        return [self._counted(*key, numbers, steps) for key in TIMES_NS if steps]

    def _counted(self, name: str, section: str, numbers: dict[str, int], steps: int) -> Any:
        is_nccl = name.startswith("nccl")  # the slow rank comes last: it waits for nobody
        factor = 1 / self._factor**10 if is_nccl else self._factor
        length_ns = round(TIMES_NS[name, section] * factor)
        index = math.ceil(math.log2(length_ns / 1e9) * 128) - 1
        kernel_class = semconv.KERNEL_CLASSES.index("nccl" if is_nccl else "compute")
        runs = steps.to_bytes(4, sys.byteorder)
        sums = steps, steps * length_ns, length_ns, length_ns
        return (name, kernel_class, numbers[section], *sums, 7, index, runs)


def main() -> None:
    endpoint, rank, world_size, slow = sys.argv[1], *map(int, sys.argv[2:])
    gpu = Gpu(1.1 if rank == slow else 1.0)
    KERNELS.timer = lambda: gpu
    otel_straggler.configure(endpoint=endpoint, run_id="gpus", rank=rank, world_size=world_size)
    for n in range(STEPS):
        with otel_straggler.step(n):
            for name in ("forward", "backward"):
                with otel_straggler.section(name):
                    time.sleep(SECTION_S)
            gpu.step()
    otel_straggler.shutdown()


if __name__ == "__main__":
    main()
