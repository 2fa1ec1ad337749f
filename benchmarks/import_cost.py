"""What `import otel_straggler` adds to a process, compared with what the OpenTelemetry SDK adds.

    python -m benchmarks.import_cost

Wall time inside fresh interpreters, alternating, median of the runs; and what got loaded.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

RUNS = 15
BUDGET_MS = 100.0
TIMED = """
import sys, time
start = time.perf_counter()
import {module}
took_ms = (time.perf_counter() - start) * 1e3
heavy = [m for m in ("torch", "grpc", "numpy", "requests", "google.protobuf") if m in sys.modules]
print(took_ms, *heavy)
"""


def measured(module: str) -> tuple[float, list[str]]:
    """Milliseconds, and which heavy modules came with it."""
    answer = subprocess.run(
        [sys.executable, "-c", TIMED.format(module=module)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    took_ms, *heavy = answer.stdout.split()
    return float(took_ms), heavy


def main() -> None:
    """Measure and print."""
    own, sdk, heavy = [], [], []
    for _ in range(RUNS):
        took_ms, heavy = measured("otel_straggler")
        own.append(took_ms)
        sdk.append(measured("opentelemetry.sdk.trace")[0])
    own_ms, sdk_ms = statistics.median(own), statistics.median(sdk)
    result = {
        "runs": RUNS,
        "own_ms": round(own_ms, 1),
        "own_heavy_modules": heavy,
        "sdk_ms": round(sdk_ms, 1),
        "own_over_sdk": round(own_ms / sdk_ms, 2),
        "budget_ms": BUDGET_MS,
        "is_within_budget": own_ms < BUDGET_MS and not heavy,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
