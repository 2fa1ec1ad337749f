"""The process of one experiment: ``python -m benchmarks.gpu.one REGISTRY KEY NOTEBOOK DOSE``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.gpu.experiment import Notebook
from benchmarks.gpu.registry import experiments


def main(registry: str, key: str, path: str, dose: str) -> int:
    """Measure."""
    experiment = experiments(registry)[key]
    notebook = Notebook(Path(path), is_quick=dose == "quick", limit_s=experiment.limit_s)
    experiment.measure(notebook)
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
