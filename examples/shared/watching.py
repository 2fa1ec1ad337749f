"""What examples 07 to 10 share: layers that take time, four ranks, and a collector."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

import torch
import torch.distributed as dist

STEPS, RANKS, SLOW_RANK, SLOW_FROM_STEP = 140, 4, 2, 70
FORWARD_S, BACKWARD_S, SLOWER_S = 0.004, 0.008, 0.024


class _TakesTime(torch.autograd.Function):
    """The time that a GPU would need for a layer."""

    @staticmethod
    def forward(ctx, x, backward_s):
        ctx.backward_s = backward_s
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None


class Layer(torch.nn.Module):
    """Two linear layers, and their time. On one rank backward takes longer from some step on."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.step = 0

    def forward(self, x):
        is_slow = dist.get_rank() == SLOW_RANK and self.step >= SLOW_FROM_STEP
        self.step += 1
        backward_s = BACKWARD_S + (SLOWER_S if is_slow else 0.0)
        return _TakesTime.apply(self.narrow(torch.relu(self.wide(x))), backward_s)


def watch(train: Callable[[], None]) -> None:
    """Start a collector and four ranks of this script, which ``train``; print what it says."""
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        train()
        sys.stdout.flush()
        os._exit(0)  # gloo sometimes aborts at interpreter exit (pytorch#190489)
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as collector:
        try:
            where = json.loads(collector.stdout.readline())
            _launch(f"http://{where['otlp_http']}")
            _print_report(_report_of(f"http://{where['metrics']}/v1/report"))
        finally:
            collector.terminate()


def _launch(endpoint: str) -> None:
    environment = {"OTEL_STRAGGLER_ENDPOINT": endpoint, "OTEL_STRAGGLER_RUN_ID": "example"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command = [sys.executable, *torchrun, sys.argv[0]]
    env = {**os.environ, **environment, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=env)


def _report_of(url: str) -> dict:
    """Wait for the last window, which closes once all ranks have ended."""
    for _ in range(100):
        with urllib.request.urlopen(url) as report:
            run = json.load(report)["runs"]["example"]
        if run["windows"] and run["windows"][-1]["last_step"] == STEPS - 1:
            break
        time.sleep(0.1)
    return run


def _print_report(run: dict) -> None:
    by_host = run["windows"][-1]["section_step_s"]["backward"].values()
    print(f"By the host's clock backward takes {min(by_host) * 1e3:.0f} ms", end=" ")
    print(f"to {max(by_host) * 1e3:.0f} ms on all ranks.")
    for verdict in run["verdicts"]:
        if verdict["state"] == "confirmed":
            print(verdict["sentence"])
