"""What timing kernels does on a real GPU: `make gpu-check` and `make gpu-soak`.

    python -m benchmarks.gpu [--only E3,E4] [--quick] [--json FILE]
    python -m benchmarks.gpu --soak [--json FILE]

It needs an NVIDIA GPU, PyTorch for CUDA, NumPy, g++, and nothing to download; no package of
OpenTelemetry, but for E14, which says so. The extension has to be built first, on that machine,
from the root of a checkout:

    python -c 'from setuptools import setup; setup()' build_ext --inplace

(or ``pip install --no-build-isolation --no-deps -e .``). A small probe in C++ (``probe/``) is built
by the first experiment. Without a GPU the answer is one sentence and exit code 3.

The experiments are those of ``registry.py``, one file each. Every one runs in a process of its own
with a time limit, and may crash without ending the rest. What is compared (``arms``) runs in a
process per arm; all of them are started together, and then take turns, ABBA, one at a time, so that
clocks and temperature are the same for all. Results are added to the JSON after each experiment: a
run that is cut short keeps what it has, and ``--only`` fills in what is missing.
"""
