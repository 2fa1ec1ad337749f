"""You will see what a training gains from 2 and 4 processes, and what 8 would bring.
Run it with: python examples/11_scalability.py
It takes about 30 seconds, longer on a busy machine; plots are in out/scalability.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import otel_straggler as ots
from otel_straggler.testing import CapturedRequests

EPOCHS, STEPS, BATCH = 2, 16, 256
OUT = Path("out/scalability")


def train() -> None:
    """Every rank works on its part of each batch: a real model, real collectives."""
    dist.init_process_group("gloo")
    layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ots.configure()
    for epoch in range(EPOCHS):
        with ots.section("epoch"):
            for n in range(epoch * STEPS, (epoch + 1) * STEPS):
                with ots.step(n), ots.section("train"):
                    model(torch.randn(BATCH // dist.get_world_size(), 512)).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
    ots.shutdown()
    dist.destroy_process_group()
    os._exit(0)  # gloo sometimes aborts at interpreter exit (pytorch#190489)


def record(ranks: int) -> None:
    """Run the training, and keep what it sends as a Collector would: requests in one file."""
    with CapturedRequests() as sink:
        run = {"OTEL_STRAGGLER_ENDPOINT": sink.url, "OTEL_STRAGGLER_RUN_ID": f"ddp_{ranks}"}
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        strategy = {"OTEL_RESOURCE_ATTRIBUTES": "training.strategy=ddp", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **run, **strategy}
        subprocess.run([sys.executable, *torchrun, __file__], check=True, env=environment)
    bodies = [request.body for request in sink.requests]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"ddp_{ranks}.pb").write_bytes(b"".join(len(b).to_bytes(4, "big") + b for b in bodies))


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    for size in (1, 2, 4):
        record(size)
    compare = [sys.executable, "-m", "otel_straggler.cli", "scalability", OUT, "--plot-dir", OUT]
    subprocess.run(compare, check=True)
