"""One rank of a gloo world that trains in lockstep; it says its process number, and each step."""

import os
import sys
import time

import torch
import torch.distributed as dist

import otel_straggler


def main() -> None:
    dist.init_process_group("gloo")
    otel_straggler.configure(endpoint=sys.argv[1], run_id="hanging", heartbeat_s=0.5, flush_s=0.2)
    print(os.getpid(), flush=True)
    for step in range(100_000):
        with otel_straggler.step(step):
            with otel_straggler.section("data"):
                time.sleep(0.01)
            with otel_straggler.section("backward"):
                dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
