"""You will see a Ray Train job of two workers report to a collector of its own.
Run it with: python examples/platforms/ray/train.py     (needs ray[train] and torch)
It takes about a minute.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import ray
import torch
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer, prepare_model

import otel_straggler as ots

STEPS, WORKERS = 60, 2


def train() -> None:
    """An ordinary loop of a Ray worker, with the lines with `ots`."""
    context = get_context()
    ots.configure(run_id=context.get_experiment_name())  # endpoint and token: see `environment`
    model = prepare_model(torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(STEPS):
        ots.step(n)
        with ots.section("data", kind="data"):
            batch = torch.randn(64, 32)
            time.sleep(0.005)  # reading it
        with ots.section("forward"):
            loss = model(batch).square().mean()
        with ots.section("backward"):
            loss.backward()
        with ots.section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    ots.shutdown()


def main() -> None:
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as collector:
        try:
            where = json.loads(collector.stdout.readline())
            # What the workers need; a token goes here, too, as OTEL_STRAGGLER_HEADERS.
            environment = {"OTEL_STRAGGLER_ENDPOINT": f"http://{where['otlp_http']}"}
            ray.init(
                num_cpus=WORKERS + 1, include_dashboard=False, runtime_env={"env_vars": environment}
            )
            run = RunConfig(name=f"ray-example-{os.getpid()}", storage_path=tempfile.mkdtemp())
            TorchTrainer(
                train, scaling_config=ScalingConfig(num_workers=WORKERS), run_config=run
            ).fit()
            ray.shutdown()
            report = [sys.executable, "-m", "otel_straggler.cli", "report", run.name]
            subprocess.run([*report, "--collector", f"http://{where['metrics']}"], check=True)
        finally:
            collector.terminate()


if __name__ == "__main__":
    main()
