"""You will see the cost of a slow rank in the experiment tracker of a training script.
Run it with: python examples/06_tracker_scalars.py
It takes about 5 seconds.
"""

import subprocess
import sys
import time

from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ReceiverSettings
from otel_straggler.integrations import TrackerScalars

FREE = "127.0.0.1:0"


class Tracker:
    """A replacement for TensorBoard's SummaryWriter; MLflow, a W&B run or a function work too."""

    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag] = value, step


def train(collector: str, otlp: str, tracker: Tracker) -> None:
    # Another process simulates eight ranks; rank 5 takes 1.5 times as long in forward.
    others = ["--ranks=8", "--slow-rank=5", "--steps=80", "--run-id=example", f"--send={otlp}"]
    send = [sys.executable, "-m", "otel_straggler.cli", "simulate", *others]
    subprocess.run(send, check=True, capture_output=True)

    scalars = TrackerScalars(tracker, collector=collector, run_id="example", rank=0, every_s=1)
    for step in range(600):
        time.sleep(0.05)  # a real script trains here
        scalars.log(step)
        if "straggler/slowdown" in tracker.scalars:
            break
    scalars.close()


def main() -> None:
    receivers = ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE)
    collector = Collector(
        CollectorSettings(receivers=receivers, metrics=MetricsSettings(listen=FREE))
    )
    addresses = collector.start()
    tracker = Tracker()
    try:
        train(f"http://{addresses['metrics']}", f"http://{addresses['otlp_http']}", tracker)
    finally:
        collector.stop()
    for name, (value, step) in tracker.scalars.items():
        print(f"step {step}: {name} = {value:.3g}")


if __name__ == "__main__":
    main()
