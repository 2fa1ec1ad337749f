"""The process of one experiment.

    python -m benchmarks.gpu.one REGISTRY KEY NOTEBOOK DOSE UNTIL

It is ended at UNTIL, in seconds of the monotonic clock.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.gpu.experiment import Notebook
from benchmarks.gpu.registry import experiments


def main(registry: str, key: str, path: str, dose: str, until_s: str) -> int:
    """Measure."""
    experiment = experiments(registry)[key]
    left_s = float(until_s) - time.monotonic()
    notebook = Notebook(Path(path), is_quick=dose == "quick", limit_s=left_s)
    experiment.measure(notebook)
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
