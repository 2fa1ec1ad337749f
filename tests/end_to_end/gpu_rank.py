"""One rank whose GPU is the fake libcupti: launches return at once, so that host times say nothing;
the slow rank's kernels take longer, and the others wait for it in their collective. It trains until
its input is closed."""

import sys
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import otel_straggler
from otel_straggler.client.gpu.surroundings import Surroundings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.native.fake_cupti import FakeGpu

STEP_S = 0.02
KERNEL_NS = 3_000_000


def main(endpoint: str, library: str, rank: int, world_size: int, slow: int, factor: float) -> None:
    cuda = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 0, synchronize=lambda device: None
    )
    sys.modules["torch"] = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0"))  # type: ignore[assignment]
    gpu = FakeGpu(Path(library))
    Surroundings.driver_path = lambda self: library  # type: ignore[method-assign]
    otel_straggler.configure(
        endpoint=endpoint,
        run_id="gpus",
        rank=rank,
        world_size=world_size,
        gpu_timing="cupti",
        gpu_overhead=0,
    )
    while not otel_straggler.gpu_timing().uses_cupti:
        time.sleep(0.05)
    own_ns = int(KERNEL_NS * (factor if rank == slow else 1.0))
    waits_ns = int(4 * KERNEL_NS * factor) - 4 * own_ns
    is_enough = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_enough.set()), daemon=True).start()
    for step in count():
        if is_enough.is_set():
            break
        with otel_straggler.step(step):
            with otel_straggler.section("forward"):
                for _ in range(4):
                    gpu.launch("gemm", own_ns)
            with otel_straggler.section("backward"):
                gpu.launch("gemm_backward", KERNEL_NS)
                gpu.launch("ncclDevKernel_AllReduce_Sum_f32", 50_000 + waits_ns)
            with otel_straggler.section("optimizer"):
                time.sleep(STEP_S)  # reads the loss, and so waits for the GPU
    otel_straggler.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6]))
