"""You will see a report of a run of 8 ranks on 2 nodes, in which rank 5 is slow in forward.
Run it with: python examples/01_report_from_a_simulated_run.py
It takes about 3 seconds.
"""

import subprocess
import sys

OTEL_STRAGGLER = [sys.executable, "-m", "otel_straggler.cli"]

# In a shell: otel-straggler simulate --ranks 8 --slow-rank 5 | otel-straggler score -
# It also reads recordings of your own runs: CSV, or files of the OpenTelemetry Collector's file
# exporter.
simulate = [*OTEL_STRAGGLER, "simulate", "--ranks", "8", "--slow-rank", "5", "--section", "forward"]
recording = subprocess.run(simulate, check=True, capture_output=True).stdout
score = [*OTEL_STRAGGLER, "score", "-"]
report = subprocess.run(score, check=True, capture_output=True, input=recording).stdout
print(report.decode())
