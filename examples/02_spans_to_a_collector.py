"""You will see two training processes send to a collector, which finds rank 1 slow in data_loading.
Run it with: python examples/02_spans_to_a_collector.py
It takes about 10 seconds.
"""

import json
import subprocess
import sys
import time
import urllib.request

import otel_straggler

STEPS = 40


def train(rank: int, endpoint: str) -> None:
    """A training loop with steps and sections."""
    otel_straggler.configure(endpoint=endpoint, run_id="example", rank=rank, world_size=2)
    for n in range(STEPS):
        with otel_straggler.step(n):
            with otel_straggler.section("data_loading", kind="data"):
                time.sleep(0.06 if rank == 1 else 0.02)
            with otel_straggler.section("forward"):
                time.sleep(0.03)
    otel_straggler.shutdown()


def main() -> None:
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as collector:
        try:
            where = json.loads(collector.stdout.readline())
            this = [sys.executable, __file__]
            ranks = [subprocess.Popen([*this, str(r), where["otlp_http"]]) for r in range(2)]
            assert [rank.wait() for rank in ranks] == [0, 0]
            window = newest_window(f"http://{where['metrics']}/v1/report")
        finally:
            collector.terminate()
    excess = window["largest_excess"]
    lost = f"{excess['excess_s'] * 1e3:.0f} ms a step"
    print(f"steps {window['first_step']} to {window['last_step']}:", end=" ")
    print(f"rank {excess['rank']} is slow in {excess['section']} and loses {lost}")


def newest_window(url: str) -> dict:
    """Wait for the last window, which closes once all ranks have passed it."""
    for _ in range(100):
        with urllib.request.urlopen(url) as report:
            run = json.load(report)["runs"].get("example", {})
        if run.get("windows") and run["windows"][-1]["last_step"] == STEPS - 1:
            break
        time.sleep(0.1)
    return run["windows"][-1]


if __name__ == "__main__":
    train(int(sys.argv[1]), f"http://{sys.argv[2]}") if len(sys.argv) > 1 else main()
