"""What timing kernels does on a real GPU: `make gpu-check` and `make gpu-soak`.

    python -m benchmarks.gpu [--only E3,E4 | --missing] [--quick] [--seconds S] [--json FILE]
    python -m benchmarks.gpu --soak [--json FILE]

It needs an NVIDIA GPU, PyTorch for CUDA, NumPy, g++, and nothing to download; packages of
OpenTelemetry for E14, E19 and E20 alone. The extension has to be built first, on that machine,
from the root of a checkout:

    python -c 'from setuptools import setup; setup()' build_ext --inplace

(or ``pip install --no-build-isolation --no-deps -e .``). A small probe in C++ (``probe/``) is built
first. Without a GPU the answer is one sentence and exit code 3; ``--fake`` is a dry run.

The experiments are those of ``registry.py``, one file each, in the order of their value and with a
budget each (``visit.py``): the first 330 s have all that the default is decided by. Every one runs
in a process of its own with a time limit, and may crash without ending the rest. What is compared
(``arms``) runs in a process per arm; all of them are started together, and then take turns, ABBA,
one at a time, so that clocks and temperature are the same for all. Results are added to the JSON
after each experiment: a run that is cut short keeps what it has, and ``--missing`` adds the rest.
"""
