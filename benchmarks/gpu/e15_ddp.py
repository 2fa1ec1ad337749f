"""E15: whether DDP's own timers tell what kernels take, name a slow rank, and what they cost."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu import ddp_pair
from benchmarks.gpu.arms import ROOT, Arms, arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.ddp_training import NEVER, DdpTraining, Kernels
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import percent_over
from benchmarks.gpu.ways import Off
from benchmarks.gpu.workloads import BACKWARD, FORWARD, LARGE, SMALL, Size, Turns, fitting

RATES = {"never": NEVER, "every 10": 10, "every 1": 1}
MODELS = {"large": (LARGE, 20), "small": (SMALL, 40)}
"""With steps of a turn, in which the rarer rate has its iterations."""
SECTIONS = {FORWARD: "forward", BACKWARD: "backward"}
PAIR_STEPS, PAIR_S = 60, 25.0
LARGE_SHARE = 0.65
"""Of the time that is left for cost."""


def measure(notebook: Notebook) -> None:
    """Who is named first, in processes of its own; then agreement with CUPTI, and cost."""
    _pair(notebook)
    gpu = cuda()
    gpu.begin()
    sizes = {
        label: asdict(fitting(gpu, size, 1 + len(RATES))) for label, (size, _) in MODELS.items()
    }
    with arms_of(__name__, ("truth", *RATES), {"sizes": sizes}) as arms:
        steps = notebook.steps(30)
        reported = arms.round(0, 20, {"truth": {"label": "large", "steps": steps}}).get("truth", {})
        _write_agreement(notebook, reported)
        for label in MODELS:
            share = LARGE_SHARE if label == "large" else 1.0
            _cost(notebook, arms, label, share * notebook.left_s() - 4)
        notebook.failures(arms.failures)


def _write_agreement(notebook: Notebook, reported: Mapping[str, float]) -> None:
    """Of a model that keeps the GPU busy: between events there are no gaps."""
    notebook.fact("ms", reported)
    for name in SECTIONS.values():
        by_ddp, by_cupti = reported.get(f"{name} ddp"), reported.get(f"{name} cupti")
        if by_ddp and by_cupti:
            notebook.figure(f"{name} beyond cupti", round(100 * (by_ddp / by_cupti - 1), 3))


def _pair(notebook: Notebook) -> None:
    """Two ranks at once, one of them slower in backward."""
    steps = notebook.steps(PAIR_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.gpu.ddp_pair"]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(Path(folder) / "store"), str(steps)],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
            for rank in range(2)
        ]  # fmt: skip
        try:
            texts = [rank.communicate(timeout=PAIR_S)[0] for rank in ranks]
        except subprocess.TimeoutExpired:
            notebook.note(f"Two ranks with DDP were not done in {PAIR_S:.0f} s.")
            return
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        notebook.note("A rank of two with DDP has failed.")
        return
    _write_pair(notebook, [json.loads(text.splitlines()[-1]) for text in texts])


def _write_pair(notebook: Notebook, ranks: list[dict[str, Any]]) -> None:
    notebook.fact("ranks", ranks)
    slow, other = ranks[ddp_pair.SLOW_RANK], ranks[1 - ddp_pair.SLOW_RANK]
    own, comm, overlap = ddp_pair.KEYS
    notebook.figure("slow rank has the longest backward", int(slow[own] > other[own]))
    waited_ms = [rank[comm] - rank[overlap] for rank in (slow, other)]
    notebook.figure("slow rank waits least", int(waited_ms[0] < waited_ms[1]))
    notebook.figure("backward of the slow rank", round(100 * (slow[own] / other[own] - 1), 2))
    if slow["nccl_ms"] is None or other["nccl_ms"] is None:
        notebook.note("NCCL's durations need two GPUs; the ranks have met by gloo.")
        return
    is_shortest = slow["nccl_ms"] < other["nccl_ms"]
    notebook.figure("slow rank has the shortest NCCL durations", int(is_shortest))


def _cost(notebook: Notebook, arms: Arms, label: str, within_s: float) -> None:
    """DDP's rates against none, in processes that take turns. What an iteration costs is the same
    at every rate, so every hundredth costs a hundredth of what every one does."""
    steps = notebook.steps(MODELS[label][1])
    rounds: list[dict[str, float]] = []
    for at in notebook.rounds(2 if notebook.is_quick else 8, within_s=within_s):
        answers = arms.round(at, 30, {name: {"label": label, "steps": steps} for name in RATES})
        rounds.append({name: reported["wall_ms"] for name, reported in answers.items()})
        for name in RATES:
            if name != "never":
                notebook.figure(f"{label} {name}", percent_over(rounds, name, "never"))
        each = percent_over(rounds, "every 1", "never")
        if each is not None:
            notebook.figure(f"{label} every 100", round(each["value"] / 100, 5))


class Truth:
    """DDP's timers and CUPTI on the same steps."""

    def __init__(self, gpu: Any, size: Size) -> None:
        self._way = Kernels(gpu)
        self._training = DdpTraining(gpu, size, self._way, 1)
        self._way.start()

    def turn(self, steps: int) -> dict[str, float]:
        """Medians in ms, by section and who says so."""
        by_ddp: dict[int, list[float]] = {section: [] for section in SECTIONS}
        self._way.begin_turn()
        for step in range(steps):
            self._training.step()
            numbers = self._training.numbers()
            if step > steps // 4:
                for section, name in SECTIONS.items():
                    by_ddp[section].append(numbers[f"{name}_compute_time"] / 1e6)
        by_cupti = self._way.busy_ms()
        result = {}
        for section, name in SECTIONS.items():
            result[f"{name} ddp"] = statistics.median(by_ddp[section])
            timed = by_cupti.get(section, [])[steps // 4 :]
            if timed:
                result[f"{name} cupti"] = statistics.median(timed)
        return result

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return {}


class _Rate:
    """Models that are trained at one of DDP's rates, one at a time."""

    def __init__(self, gpu: Any, name: str, sizes: Mapping[str, Any]) -> None:
        self._gpu, self._name, self._sizes = gpu, name, sizes
        self._label = ""
        self._model: Any = None

    def turn(self, label: str, steps: int) -> dict[str, Any]:
        """As of ``Turns``; of the truth, ms by section and who says so."""
        if label != self._label:
            self._label, self._model = label, None
            self._model = self._trained(Size(**self._sizes[label]))
        result: dict[str, Any] = self._model.turn(steps)
        return result

    def _trained(self, size: Size) -> Any:
        if self._name == "truth":
            return Truth(self._gpu, size)
        training = DdpTraining(self._gpu, size, Off(self._gpu), RATES[self._name])
        return Turns(self._gpu, training.way, training.step)

    def finish(self) -> dict[str, Any]:
        return {}


def make_arm(name: str, options: Mapping[str, Any]) -> _Rate:
    """The truth, or one of the rates."""
    gpu = cuda()
    gpu.begin()
    return _Rate(gpu, name, options["sizes"])


EXPERIMENT = Experiment(
    key="E15",
    question="Whether DDP's own timers agree with CUPTI and name a slow rank, and what they cost",
    expected=(
        *(
            Expected(
                figure=f"{name} beyond cupti", unit="%", minimum=-2, maximum=2, is_requirement=True
            )
            for name in SECTIONS.values()
        ),
        Expected(figure="slow rank has the longest backward", minimum=1, is_requirement=True),
        Expected(figure="slow rank waits least", minimum=1, is_requirement=True),
        Expected(figure="backward of the slow rank", unit="%", minimum=5),
        Expected(figure="slow rank has the shortest NCCL durations", minimum=1),
        *(
            Expected(figure=f"{label} {name}", unit="%", maximum=0.1 if "100" in name else None)
            for label in MODELS
            for name in ("every 100", "every 10", "every 1")
        ),
    ),
    limit_s=75,
    budget_s=60,
    measure=measure,
)
