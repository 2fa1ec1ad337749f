"""E18: whether a rank whose GPU is slower is named by its kernels, under DDP, from 1 step in 10.

One process trains, with the GPU for itself: what it recorded while the GPU was quiet is the peer
that it is scored beside, and its own past. So no two ranks share the GPU, and slow one another.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu import native
from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.ddp_training import NEVER, DdpTraining
from benchmarks.gpu.e11_detection import SIZE
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.kernel_medians import Kernels, score_beside
from benchmarks.gpu.neighbour import Neighbour, percent_slower, search
from benchmarks.gpu.variants import ByRecord
from benchmarks.gpu.ways import Off
from benchmarks.gpu.workloads import Size
from otel_straggler.detect.scores.formulas import individual_gpu_scores

EVERY, SAMPLES = 10, 3
"""Steps of which one is sampled; samples of a window."""
WINDOWS = 5
NAMED = 0.9
"""A rank whose score is below, and the lowest of its peers, is named."""
WANTED = (15.0, 45.0)
"""Percent that kernels are to be slower."""
NOT_OURS = ("probe_spin", "nccl")


def measure(notebook: Notebook) -> None:
    """Windows while the GPU is quiet and while it has a neighbour."""
    with arms_of(__name__, ("rank",), {"size": asdict(SIZE)}) as arms:
        reported = arms.round(0, 60, {"rank": {}}).get("rank")
        notebook.failures(arms.failures)
    if reported is None:
        return
    notebook.fact("found", reported)
    quiet, slow = reported["quiet"], reported["slow"]
    notebook.figure("slowdown of kernels", reported["slowdown_percent"])
    for label, scores in (("beside a peer", "peer"), ("against its own past", "past")):
        notebook.figure(f"score {label}", statistics.median(one[scores] for one in slow))
        named = [sum(one[scores] < NAMED for one in windows) for windows in (quiet, slow)]
        notebook.figure(f"windows that name it {label}, quiet", named[0])
        notebook.figure(f"windows that name it {label}, slow", named[1])
    for kernel, percent in reported["slowest"]:
        notebook.note(f"Slower by {percent:.0f} %: {kernel}")


class Arm:
    """A model in DDP, a world of one, and a neighbour on its GPU."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name
        self._cuda = cuda()
        self._cuda.begin()
        self._training = DdpTraining(self._cuda, Size(**options["size"]), Off(self._cuda), NEVER)
        self._way = _Records(self._cuda, reading=native.KEEP)
        self._way.probe.open_launcher(self._cuda.driver)
        self._stream = self._cuda.pointer(self._cuda.stream())
        self._way.start()

    def turn(self) -> dict[str, Any]:
        """Scores of windows, and by how much kernels were slower."""
        self._way.begin_turn()
        self._window(1)
        peer = self._window(2 * SAMPLES)
        quiet = [_scores(self._window(), peer) for _ in range(WINDOWS)]
        neighbour = partial(Neighbour, self._way.probe, self._stream)
        load, tried = search(
            neighbour,
            lambda: percent_slower(self._window(2), peer),
            lambda: self._window(1),
            self._cuda.synchronize,
            WANTED,
        )
        with neighbour(load):
            self._window(1)
            slow = [self._window() for _ in range(WINDOWS)]
        self._way.end_turn()
        return {
            "quiet": quiet,
            "slow": [_scores(one, peer) for one in slow],
            "slowdown_percent": percent_slower(slow[-1], peer),
            "slowest": slowest(slow[-1], peer),
            "load": asdict(load),
            "tried": tried,
        }

    def _window(self, samples: int = SAMPLES) -> Kernels:
        """Kernels of so many sampled steps, of ten times as many steps."""
        for at in range(samples * EVERY):
            is_sampled = at % EVERY == 0
            if is_sampled:
                self._way.switch(is_on=True)
            self._training.step()
            if is_sampled:
                self._way.switch(is_on=False)
        self._cuda.synchronize()
        self._way.probe.flush(0)
        return kernels_by_name(self._way.probe.take(), self._way.probe.name)

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return self._way.facts()


class _Records(ByRecord):
    """Variant C, of which only the kernel records are wanted here."""

    has_kernels = False


def kernels_by_name(records: Any, name_of: Any) -> Kernels:
    """Median and total in s of compute kernels, from records of the probe."""
    kernels = records[records["kind"] == native.KERNEL]
    taken: dict[int, list[int]] = defaultdict(list)
    lengths = (kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)).tolist()
    for number, length in zip(kernels["name"].tolist(), lengths, strict=True):
        taken[number].append(length)
    named = {name_of(number): ns for number, ns in taken.items()}
    return {
        name: (statistics.median(ns) * 1e-9, sum(ns) * 1e-9)
        for name, ns in named.items()
        if not any(other in name for other in NOT_OURS)
    }


def slowest(own: Kernels, peer: Kernels, count: int = 3) -> list[tuple[str, float]]:
    """Kernels that cost most more than the peer's: names, and percent."""
    common = [name for name in own if name in peer and peer[name][0] > 0]
    more_s = {name: own[name][1] * (1 - peer[name][0] / own[name][0]) for name in common}
    first = sorted(common, key=lambda name: -more_s[name])[:count]
    return [(name, 100 * (own[name][0] / peer[name][0] - 1)) for name in first]


def _scores(own: Kernels, peer: Kernels) -> dict[str, float]:
    """Beside three ranks that are all like the peer, and against its own past."""
    names: Sequence[str] = sorted(own)
    nothing = (float("nan"), 0.0)
    table = np.array([[own[name] for name in names]]).reshape(1, -1, 2)
    past = np.array([[peer.get(name, nothing)[0] for name in names]])
    return {
        "peer": score_beside(own, peer),
        "past": float(individual_gpu_scores(table[:, :, 0], table[:, :, 1], past)[0]),
    }


make_arm = Arm
_LABELS = ("beside a peer", "against its own past")
EXPERIMENT = Experiment(
    key="E18",
    question="Whether a slow GPU is named by its kernels under DDP, from 1 step in 10",
    expected=(
        Expected(figure="slowdown of kernels", unit="%", minimum=WANTED[0], maximum=WANTED[1]),
        *(Expected(figure=f"score {label}", maximum=NAMED) for label in _LABELS),
        *(
            Expected(
                figure=f"windows that name it {label}, {state}",
                minimum=count,
                maximum=count,
                is_requirement=True,
            )
            for label in _LABELS
            for state, count in (("quiet", 0), ("slow", WINDOWS))
        ),
    ),
    limit_s=75,
    budget_s=35,
    measure=measure,
)
