"""Trains a small network on handwritten digits with DDP on CPUs; one rank becomes slow half-way.

Started by run.py, or alone, with a collector on the default ports:
    torchrun --nproc-per-node 4 examples/demo/train.py

What it takes to be watched are the lines with ``otel_straggler``. The training is real, but a CPU
needs only a millisecond for such a network. So each section also waits out the time that a GPU
would keep its host waiting; this keeps the demo's timing alike on a laptop and a busy CI machine.
"""

import argparse
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn import functional as F  # noqa: N812 (the name everybody knows)
from torch.nn.parallel import DistributedDataParallel

import otel_straggler
from otel_straggler import section, step

BATCH = 64
HELD_OUT = 297
SECTION_S = {"data_loading": 0.020, "forward": 0.030, "backward": 0.050, "optimizer": 0.005}
SLOWER_BY_S = 0.045


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    otel_straggler.configure()  # where to and which run: from the environment

    images, labels, test_images, test_labels = load_shard(rank, world)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(options.seed + rank)
    device = Device(options, rank)
    times = open_times(options.step_times) if rank == 0 else None

    for n in range(options.steps):
        began = time.perf_counter()
        with step(n):
            with section("data_loading", kind="data"), device.busy("data_loading", n):
                chosen = torch.randint(len(images), (BATCH,), generator=generator)
                batch, wanted = images[chosen], labels[chosen]
            with model.no_sync():  # or DDP would hide the waiting for others in backward
                with section("forward"), device.busy("forward", n):
                    loss = F.cross_entropy(model(batch), wanted)
                with section("backward"), device.busy("backward", n):
                    loss.backward()
            with section("gradient_sync", kind="wait"):
                average_gradients(model, world)
            with section("optimizer"), device.busy("optimizer", n):
                optimizer.step()
                optimizer.zero_grad()
        if times:
            print(time.time(), time.perf_counter() - began, file=times, flush=True)
        if rank == 0 and (n + 1) % options.say_every == 0:
            with torch.no_grad():
                right = (network(test_images).argmax(1) == test_labels).float().mean().item()
            print(f"step {n + 1:4d}   loss {loss.item():.3f}   accuracy {right:.1%}", flush=True)

    otel_straggler.shutdown()
    if times:
        times.close()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo aborts now and then while the interpreter ends (pytorch#190489)


def open_times(path: str):
    return Path(path).open("w") if path else None


class Device:
    """Keeps the host waiting as a GPU would; on the slow rank, from half-way on, for longer."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self.slow_section = options.slow_section if rank == options.slow_rank else ""
        self.slow_from = options.steps // 2
        self.is_paced = not options.unpaced

    @contextmanager
    def busy(self, name: str, n: int):
        until = time.perf_counter() + SECTION_S[name]
        if name == self.slow_section and n >= self.slow_from:
            until += SLOWER_BY_S
        yield
        if self.is_paced:
            time.sleep(max(0.0, until - time.perf_counter()))


def average_gradients(model: torch.nn.Module, world: int) -> None:
    """One all-reduce of all gradients: here every rank waits for the slowest."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= world
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def load_shard(rank: int, world: int) -> tuple[torch.Tensor, ...]:
    """This rank's share of the images, and those that nobody trains on."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32) / 16
    labels = torch.tensor(digits)
    shard = slice(HELD_OUT + rank, None, world)
    return images[shard], labels[shard], images[:HELD_OUT], labels[:HELD_OUT]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow-rank", type=int, default=-1, help="-1: none")
    parser.add_argument("--slow-section", choices=["data_loading", "forward"], default="forward")
    parser.add_argument("--say-every", type=int, default=40, help="steps")
    parser.add_argument("--step-times", default="", help="file for rank 0's: end and seconds")
    parser.add_argument("--unpaced", action="store_true", help="do not wait as for a GPU")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OTEL_STRAGGLER_RUN_ID", "demo")
    main()
