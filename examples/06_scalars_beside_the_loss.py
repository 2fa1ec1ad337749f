"""You will see what a slow rank costs in the tracker that a training script logs its loss to.
Run it with: python examples/06_scalars_beside_the_loss.py
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
    """Stands for TensorBoard's SummaryWriter; MLflow, a W&B run or a function would do as well."""

    def __init__(self):
        self.seen = {}

    def add_scalar(self, tag, value, step):
        self.seen[tag] = value, step


def train(collector: str, otlp: str, tracker: Tracker) -> None:
    # Another process sends what eight ranks would; rank 5 takes 1.5 times as long in forward.
    others = "simulate --ranks 8 --slow-rank 5 --steps 80 --run-id example".split()
    send = [sys.executable, "-m", "otel_straggler.cli", *others, "--send", otlp]
    subprocess.run(send, check=True, capture_output=True)

    scalars = TrackerScalars(tracker, collector=collector, run_id="example", rank=0, every_s=1)
    for step in range(600):
        time.sleep(0.05)  # here a real script trains
        scalars.log(step)
        if "straggler/slowdown" in tracker.seen:
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
    for name, (value, step) in tracker.seen.items():
        print(f"step {step}: {name} = {value:.3g}")


if __name__ == "__main__":
    main()
