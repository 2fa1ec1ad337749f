"""A training as code written against NVRx has it: rank 1 sleeps in its forward pass.

Prints a line of JSON per report.
"""

import json
import time
import uuid

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.launcher import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from otel_straggler import detector as straggler

STEPS, REPORT_EVERY = 30, 10


def train() -> None:
    straggler.Detector.initialize(gather_on_rank0=True)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        with straggler.Detector.detection_section("fwd", profile_cuda=True):
            loss = model(torch.rand(8, 16)).sum()
            time.sleep(0.02 if rank == 1 else 0.005)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % REPORT_EVERY == 0:
            report = straggler.Detector.generate_report()
            if rank == 0:
                listed = report.identify_stragglers()["straggler_sections_relative"]
                reported = {
                    "fwd": report.section_relative_perf_scores["fwd"],
                    "stragglers": sorted(s.rank for s in listed.get("fwd", ())),
                }
                print(json.dumps(reported), flush=True)
    straggler.Detector.shutdown()
    dist.destroy_process_group()


def main() -> None:
    straggler.Detector.initialize()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=1,
    )
    elastic_launch(config, entrypoint=train)()


if __name__ == "__main__":
    main()
