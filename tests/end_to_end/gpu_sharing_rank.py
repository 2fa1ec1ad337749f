"""One rank of four on a GPU that it shares: torch says the same UUID to all of them, as it does for
processes on one device. First rank 2 is slow for a while, later rank 1, by the host's time."""

import os
import sys
import time
from types import SimpleNamespace

import otel_straggler as ots

STEP_S, STEPS = 0.02, 360
SLOW = {2: range(60, 140), 1: range(220, STEPS)}


def main(endpoint: str, run_id: str, device: str) -> None:
    rank = int(os.environ["RANK"])
    properties = SimpleNamespace(uuid=device, name="NVIDIA H200")
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        _is_in_bad_fork=lambda: False,
        device_count=lambda: 1,
        current_device=lambda: 0,
        get_device_properties=lambda _: properties,
    )
    sys.modules["torch"] = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0"))  # type: ignore[assignment]
    ots.configure(endpoint=endpoint, run_id=run_id, gpu_timing="off", heartbeat_s=0.2, flush_s=0.1)
    for step in range(STEPS):
        with ots.step(step), ots.section("forward"):
            time.sleep(STEP_S * (3.0 if step in SLOW.get(rank, ()) else 1.0))
    ots.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
