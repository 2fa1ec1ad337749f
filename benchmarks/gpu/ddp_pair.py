"""One of two ranks that train with DDP, of which one is slower in backward.

    python -m benchmarks.gpu.ddp_pair RANK STORE STEPS

Prints as JSON the medians of what DDP's own timers say and, with NCCL, of the durations of its
collectives. NCCL needs a GPU per rank: with one, both ranks are on it and use gloo.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections import defaultdict
from typing import Any

from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.workloads import SMALL, TINY, model_of

SLOW_RANK = 1
DOSE = 0.3
"""So much more work in backward, by as many times a layer of the model."""
KEYS = ("backward_compute_time", "backward_comm_time", "backward_compute_comm_overlap_time")


def main(rank: int, store: str, steps: int) -> dict[str, Any]:
    """Train, and tell."""
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    gpu = cuda()
    torch = gpu.torch
    device = gpu.device
    has_nccl = not gpu.is_fake and torch.cuda.device_count() > 1
    if has_nccl:
        torch.cuda.set_device(rank)
    gpu.begin()
    dist = torch.distributed
    backend = "nccl" if has_nccl else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    size = TINY if gpu.is_fake else SMALL
    model = model_of(torch, size, device, gpu.dtype)
    extra = _extra_work(torch, size, device) if rank == SLOW_RANK else None
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp._set_ddp_runtime_logging_sample_rate(1)
    text = torch.randint(0, size.vocabulary, (size.batch, size.tokens), device=device)
    numbers = defaultdict(list)
    for step in range(steps):
        loss = ddp(text)
        seen = ddp.logger._get_ddp_logging_data().ints_map
        if step > steps // 4:
            for key in KEYS:
                numbers[key].append(seen[key] / 1e6)
        if extra is not None:
            loss.register_hook(extra)
        loss.backward()
        ddp.zero_grad(set_to_none=True)
    gpu.synchronize()
    result: dict[str, Any] = {key: statistics.median(values) for key, values in numbers.items()}
    result["nccl_ms"] = _nccl_ms(torch) if has_nccl else None
    dist.barrier()
    dist.destroy_process_group()
    return result


def _extra_work(torch: Any, size: Any, device: str) -> Any:
    """A hook that has the GPU multiply matrices for about ``DOSE`` of a backward."""
    tokens, width = size.batch * size.tokens, size.width
    rows, matrix = (torch.randn(n, width, device=device) / width**0.5 for n in (tokens, width))
    # A layer has 12 width^2 weights, and backward passes each twice.
    times = max(4, round(DOSE * size.layers * 24))

    def work(gradient: Any) -> Any:
        result = rows
        for _ in range(times):
            result = result @ matrix
        return gradient + 0.0 * result.sum().to(gradient.dtype).nan_to_num()

    return work


def _nccl_ms(torch: Any) -> float | None:
    """Median of a collective, by NCCL's own events."""
    dumped = json.loads(torch._C._distributed_c10d._dump_nccl_trace_json())
    times = [entry["duration_ms"] for entry in dumped["entries"] if "duration_ms" in entry]
    return statistics.median(times) if times else None


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))), flush=True)
    os._exit(0)
