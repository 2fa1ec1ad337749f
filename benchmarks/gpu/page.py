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
NOBODY = "Nobody has run this yet."
_HEAD = """# What timing kernels does on a real GPU

Figures of `make gpu-check` (ten minutes) and `make gpu-soak` (nine), beside what was expected of \
them before. How kernels are timed, and in which tier: [gpu-timing.md](../recipes/gpu-timing.md).

**met**: as expected. **missed**: a requirement is not fulfilled. **differs**: a guess was wrong; \
nothing depends on it. Brackets hold the quartiles over all rounds.

**off**: nothing is timed. **m1**, **m2**: our timer, by marks and by a callback at each launch. \
**kernels**: kernel records alone. **m3**: with ids pushed at each section, and records of the \
calls that launch. **m4**: the same with records of all driver calls. **nvrx**: kernel records \
switched on and off at each section, as NVRx does it (its own module where it is installed). \
**events**: a CUDA event before and after each section. **profiler**: torch.profiler. E12 (what \
polling NVML costs) has no experiment yet.

## How to run it
On a machine with an NVIDIA GPU, PyTorch for CUDA, NumPy and g++; nothing is downloaded:

```bash
make gpu-check PYTHON=python3
make gpu-soak PYTHON=python3
```

Both build the extension in place and add to `docs/measurements/gpu-check.json`, after every \
experiment. `python -m benchmarks.gpu --only E3,E4` repeats some of them, `--quick` takes a look, \
`--json FILE` writes elsewhere. Without a GPU it says so and ends with exit code 3 (`make` \
reports that as its own failure). Where a command may take no more than ten minutes in all, build \
first and give less time: `GPU_FLAGS='--seconds 480'`; what was not run then says so, and \
`--only` adds it. A machine without `nvidia-smi` or git is fine. Then `make generate` writes this \
page.
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
    text = decision(accepted) if accepted else f"{NOBODY} So nothing is decided."
    return f"## Which tier may be the default\n{_block(text) if accepted else text}\n"


def _section(experiment: Experiment, result: Mapping[str, Any] | None) -> str:
    head = f"## {experiment.key}: {experiment.question}\n"
    if result is None:
        return head + f"{NOBODY} Expected:\n\n" + _expected(experiment)
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
