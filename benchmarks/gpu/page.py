"""docs/internals/gpu-measurements.md, from the JSON of ``make gpu-check`` and ``make gpu-soak``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.acceptance import EVENTS, SAMPLING
from benchmarks.gpu.experiment import Experiment
from benchmarks.gpu.registry import experiments
from benchmarks.gpu.table import decision, measured

FOLDER = Path(__file__).parents[2] / "docs" / "measurements"
RESULTS = FOLDER / "gpu-check.json"
FIRST_VISIT = FOLDER / "gpu-h200-quick.json"
ABOUT_FIRST_VISIT = Path(__file__).with_name("first_visit.md")
NOT_RUN = "Not run yet."
_HEAD = """# GPU timing on a real GPU

Results of `make gpu-check` (ten minutes) and `make gpu-soak` (nine), compared with the \
expectations written down before. How kernels are timed, and in which tier: \
[gpu-timing.md](../recipes/gpu-timing.md).

**met**: as expected. **missed**: a requirement is not fulfilled. **differs**: an assumption was \
wrong, without consequences. Brackets have the quartiles over all rounds.

**off**: no timing. **m1**, **m2**: our timer, by marks and by a callback at each launch. \
**c**, **g**, **l**: the bare CUPTI, by marks with a record, by marks with a callback, by \
callbacks at launches. **1 in N**: CUDA events in every step, kernels by c in one of N. \
**kernels**: kernel records alone. **m3**: with ids pushed at each section, and records of the \
launching calls. **m4**: the same with records of all driver calls. **nvrx**: kernel records \
turned on and off at each section, as in NVRx (with its own module if it is installed). \
**events**: a CUDA event before and after each section. **profiler**: torch.profiler. E12 (cost of \
polling NVML) has no experiment yet.

## How to run it
On a machine with an NVIDIA GPU, PyTorch for CUDA, NumPy and g++; nothing is downloaded. Two \
visits, of which the first decides the defaults and the second has the rest:

```bash
make gpu-check PYTHON=python3 GPU_FLAGS='--seconds 330'
make gpu-check PYTHON=python3 GPU_FLAGS='--seconds 330 --missing'
```

Experiments run in the order of their value, each with a budget. 330 s are enough for every figure \
that the rules of the default look at (E0, E16, E4, E3, E17, E14, E7, E6); what had no time is \
named, and `--missing` runs what the JSON lacks. The last line of the output says what to set \
`AUTO_TIER` to, whether kernels are to be sampled by default, and why. Without `--seconds` a run \
takes 570 s; `make gpu-soak PYTHON=python3` is E9, 25 million kernels, in 560 s.

Both targets build the extension in place and append to `docs/measurements/gpu-check.json` after \
every experiment; `python -m benchmarks.gpu --only E3,E4` repeats some of them, `--quick` is a \
short run, `--json FILE` writes elsewhere. Without a GPU the command prints a message and exits \
with code 3 (which `make` reports as its own failure). `make gpu-dry-run` runs all of it on a fake \
libcupti, to see that every experiment still runs; its figures mean nothing. `nvidia-smi` and git \
are optional. Then `make generate` writes this page.
"""


def page() -> str:
    """The page as the results stand."""
    result = _read(RESULTS)
    results, first = result.get("experiments", {}), _read(FIRST_VISIT).get("experiments", {})
    known = sorted(experiments().values(), key=lambda e: int(e.key[1:]))
    parts = [_HEAD, _default(result.get("acceptance"))]
    if first:
        parts.append(ABOUT_FIRST_VISIT.read_text(encoding="utf-8"))
    parts += [_section(experiment, results.get(experiment.key)) for experiment in known]
    if first:
        parts.append("## Quick doses on one H200\n")
        parts += [_results(f"### {key}: {one['question']}\n", one) for key, one in first.items()]
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return result


def _default(accepted: Mapping[str, Any] | None) -> str:
    if accepted:
        return f"## Default tier\n{_block(decision(accepted))}\n"
    rules = {"CUDA events in every step": EVENTS, "kernels in one step of many": SAMPLING}
    lines = [f"- {of}: {rule.text}" for of, which in rules.items() for rule in which]
    text = "\n".join(lines)
    return f"## Default tier\n{NOT_RUN} The rules of what `auto` does:\n\n{text}\n"


def _section(experiment: Experiment, result: Mapping[str, Any] | None) -> str:
    head = f"## {experiment.key}: {experiment.question}\n"
    if result is None:
        return head + f"{NOT_RUN} Expected:\n\n" + _expected(experiment)
    return _results(head, result)


def _results(head: str, result: Mapping[str, Any]) -> str:
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
    return f"```\n{text}\n```"
