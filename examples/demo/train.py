"""Train a small network with DDP on CPUs until it is stopped; `make demo` monitors it.

Start it with `otel-straggler demo --train`, or alone, with a collector on the default ports:
    torchrun --nproc-per-node 4 examples/demo/train.py --steps 240

The lines with ``otel_straggler`` are the instrumentation. The training is real, but a CPU needs
only a millisecond for such a network. So each section also sleeps for the time that a GPU would
need; this keeps the demo's timing the same on a laptop and a busy CI machine.
A signal injects a fault: SIGUSR1 makes a rank slow, SIGUSR2 keeps it from the next all-reduce.
"""

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F  # noqa: N812 (the conventional name)
from torch.nn.parallel import DistributedDataParallel

import otel_straggler
from otel_straggler import section, step

BATCH = 64
SAMPLES, INPUTS, CLASSES, HELD_OUT = 1800, 64, 10, 300
SECTION_S = {"data_loading": 0.020, "forward": 0.030, "backward": 0.050, "optimizer": 0.005}
SLOWER_BY_S = 0.045


def main() -> None:
    options = parse_arguments()
    gpu = SimulatedGpu(is_paced=not options.unpaced)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    otel_straggler.configure()  # endpoint and run come from the environment

    images, labels, test_images, test_labels = load_shard(rank, world)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    times = open_times(options.step_times) if rank == 0 else None

    n = 0
    while options.steps is None or n < options.steps:
        began = time.perf_counter()
        with step(n):
            with section("data_loading", kind="data"), gpu.busy("data_loading"):
                chosen = torch.randint(len(images), (BATCH,), generator=generator)
                batch, wanted = images[chosen], labels[chosen]
            with section("forward"), gpu.busy("forward"):
                loss = F.cross_entropy(model(batch), wanted)
            with section("backward"):
                loss.register_hook(gpu.work_backward)
                loss.backward()  # averages gradients: every rank waits for the slowest one here
            with section("optimizer"), gpu.busy("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        n += 1
        if times:
            print(time.time(), time.perf_counter() - began, file=times, flush=True)
        if rank == 0 and n % options.log_every == 0:
            with torch.no_grad():
                right = (network(test_images).argmax(1) == test_labels).float().mean().item()
            print(f"step {n:4d}   loss {loss.item():.3f}   accuracy {right:.1%}", flush=True)

    otel_straggler.shutdown()
    if times:
        times.close()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo sometimes aborts at interpreter exit (pytorch#190489)


def open_times(path: str):
    return Path(path).open("w") if path else None


class SimulatedGpu:
    """Blocks the host as a GPU would; for longer, or forever, after a signal."""

    def __init__(self, *, is_paced: bool) -> None:
        self.is_paced = is_paced
        self.seconds = dict(SECTION_S)
        self.is_stuck = False
        signal.signal(signal.SIGUSR1, self.become_slow)
        signal.signal(signal.SIGUSR2, self.become_stuck)

    def become_slow(self, *_: object) -> None:
        self.seconds[os.environ.get("DEMO_SLOW_SECTION", "forward")] += SLOWER_BY_S

    def become_stuck(self, *_: object) -> None:
        self.is_stuck = True

    @contextmanager
    def busy(self, name: str):
        until = time.perf_counter() + self.seconds[name]
        yield
        if self.is_paced:
            time.sleep(max(0.0, until - time.perf_counter()))
        if self.is_stuck and name == "forward":
            threading.Event().wait()

    def work_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Take the time of backward before there are gradients to average."""
        if self.is_paced:
            time.sleep(self.seconds["backward"])
        return gradient


def load_shard(rank: int, world: int) -> tuple[torch.Tensor, ...]:
    """Generate images; return this rank's share and the held-out ones."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(SAMPLES, INPUTS, generator=generator)
    labels = (images @ torch.randn(INPUTS, CLASSES, generator=generator)).argmax(1)
    shard = slice(HELD_OUT + rank, None, world)
    return images[shard], labels[shard], images[:HELD_OUT], labels[:HELD_OUT]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, help="number of steps (default: unlimited)")
    parser.add_argument("--log-every", type=int, default=40, help="steps between log lines")
    parser.add_argument(
        "--step-times", default="", help="file for end and seconds of rank 0's steps"
    )
    parser.add_argument("--unpaced", action="store_true", help="do not simulate GPU time")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OTEL_STRAGGLER_RUN_ID", "demo")
    main()
