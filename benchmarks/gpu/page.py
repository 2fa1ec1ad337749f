"""docs/internals/gpu-measurements.md, from the JSON of ``make gpu-check`` and ``make gpu-soak``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.experiment import Experiment
from benchmarks.gpu.registry import experiments
from benchmarks.gpu.table import decision, measured

RESULTS = Path(__file__).parents[2] / "docs" / "measurements" / "gpu-check.json"
NOT_RUN = "Not run yet."
_HEAD = """# GPU timing on a real GPU

Results of `make gpu-check` (ten minutes) and `make gpu-soak` (nine), compared with the \
expectations written down before the first run. How kernels are timed, and in which tier: \
[gpu-timing.md](../recipes/gpu-timing.md).

**met**: as expected. **missed**: a requirement is not fulfilled. **differs**: an assumption was \
wrong, without consequences. Brackets have the quartiles over all rounds.

**off**: no timing. **m1**, **m2**: our timer, by marks and by a callback at each launch. \
**kernels**: kernel records alone. **m3**: with ids pushed at each section, and records of the \
launching calls. **m4**: the same with records of all driver calls. **nvrx**: kernel records \
turned on and off at each section, as in NVRx (with its own module if it is installed). \
**events**: a CUDA event before and after each section. **profiler**: torch.profiler. E12 (cost of \
polling NVML) has no experiment yet.

## How to run it
On a machine with an NVIDIA GPU, PyTorch for CUDA, NumPy and g++; nothing is downloaded:

```bash
make gpu-check PYTHON=python3
make gpu-soak PYTHON=python3
```

Both build the extension in place and append to `docs/measurements/gpu-check.json` after every \
experiment. `python -m benchmarks.gpu --only E3,E4` repeats some of them, `--quick` is a short \
run, `--json FILE` writes elsewhere. Without a GPU the command prints a message and exits with \
code 3 (which `make` reports as its own failure). If commands are limited to ten minutes, build \
first and set a shorter time: `GPU_FLAGS='--seconds 480'`; skipped experiments are marked as such, \
and `--only` adds them. `nvidia-smi` and git are optional. Then `make generate` writes this page.
"""


def page() -> str:
    """The page as the results stand."""
    result = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results = result.get("experiments", {})
    accepted = result.get("acceptance")
    parts = [_HEAD, _default(accepted)]
    known = sorted(experiments().values(), key=lambda e: int(e.key[1:]))
    parts += [_section(experiment, results.get(experiment.key)) for experiment in known]
    return "\n".join(parts)


def _default(accepted: Mapping[str, Any] | None) -> str:
    text = decision(accepted) if accepted else f"{NOT_RUN} No decision."
    return f"## Default tier\n{_block(text) if accepted else text}\n"


def _section(experiment: Experiment, result: Mapping[str, Any] | None) -> str:
    head = f"## {experiment.key}: {experiment.question}\n"
    if result is None:
        return head + f"{NOT_RUN} Expected:\n\n" + _expected(experiment)
    lines = [head + _where(result), "", "| figure | measured | expected | verdict |"]
    lines.append("| --- | --- | --- | --- |")
    for line in result["table"]:
        cells = (line["figure"], measured(line), line["expected"], line["verdict"])
        lines.append("| " + " | ".join(cells) + " |")
    if result["status"] != "done":
        lines += ["", f"It {result['status']}.", _block("\n".join(result.get("last_lines", ())))]
    lines += ["", *(f"- {note}" for note in result["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def _expected(experiment: Experiment) -> str:
    rows = [f"| {e.figure} | {e.words()} |" for e in experiment.expected]
    return "\n".join(["| figure | expected |", "| --- | --- |", *rows]) + "\n"


def _where(result: Mapping[str, Any]) -> str:
    on = result["measured_on"]
    gpu, torch = on.get("gpu", {}), on.get("torch", {})
    parts = (
        gpu.get("name", "unknown GPU"),
        f"driver {gpu.get('driver_version', 'unknown')}",
        f"PyTorch {torch.get('version', 'unknown')}",
        f"Python {on['machine']['python']}",
        f"commit {on['commit']}",
        f"{result['dose']} dose",
        f"{result['seconds']:.0f} s",
    )
    return ", ".join(parts) + "."


def _block(text: str) -> str:
    return f"```text\n{text}\n```"
