"""You will see plain OpenTelemetry spans scored: rank 1 takes 3 times as long in forward.
Run it with: python examples/03_score_plain_opentelemetry_spans.py
It takes about 5 seconds.
"""

import json
import subprocess
import sys
import time
import urllib.request

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

STEPS = 40


def train(rank: int, endpoint: str) -> None:
    """A program with existing spans. The only addition is the rank on its resource."""
    resource = {"service.name": "plain", "training.rank": rank, "training.world_size": 2}
    provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracer = provider.get_tracer("my.trainer")
    for n in range(STEPS):  # without a step number, windows are 30 s long
        with tracer.start_as_current_span("forward", attributes={"training.step": n}):
            time.sleep(0.03 if rank == 1 else 0.01)
    provider.shutdown()


def main() -> None:
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as collector:
        try:
            where = json.loads(collector.stdout.readline())
            for rank in range(2):
                train(rank, f"http://{where['otlp_http']}")
            window = first_window(f"http://{where['metrics']}/v1/report")
        finally:
            collector.terminate()
    for slow in window["stragglers"]:
        print(f"rank {slow['rank']} takes {1 / slow['score']:.1f} times as long in", end=" ")
        print(f"{slow['section']} as the fastest rank")


def first_window(url: str) -> dict:
    """Wait for a window. Without a run id, the run is named after the service."""
    for _ in range(100):
        with urllib.request.urlopen(url) as report:
            run = json.load(report)["runs"].get("plain", {})
        if run.get("windows"):
            break
        time.sleep(0.1)
    return run["windows"][-1]


if __name__ == "__main__":
    main()
