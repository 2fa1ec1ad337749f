"""E11: whether a GPU that is 10 % slower shows in its score within 50 steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.kernel_medians import Kernels, kernels_of, score_beside
from benchmarks.gpu.ways import Timed
from benchmarks.gpu.workloads import Size, Training

SIZE = Size(8, 1536, 8, 512, is_fused=True)
WINDOW, WINDOWS = 10, 5
"""Steps that are scored together; how many times."""
MOVED, QUIET = 0.95, 0.97
WANTED = (7.0, 30.0)
"""Percent that kernels are to be slower: 10 if the neighbour can be chosen so finely."""
SLICE_S = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """What the neighbour occupies: multiprocessors with so many threads each; is_alone: and with
    so much shared memory that most kernels find no place next to it."""

    blocks: float
    threads: int
    is_alone: bool = False


LOADS = (
    *(Load(1.0, threads) for threads in (128, 256, 512, 1024)),
    *(Load(part, 1024, is_alone=True) for part in (0.01, 0.03, 0.06, 0.1, 0.15, 0.25, 0.4)),
)
"""From light to heavy; blocks as a part of all multiprocessors."""


def measure(notebook: Notebook) -> None:
    """In one process: a quiet GPU is the peer, the same GPU with a neighbour the slow rank."""
    with arms_of(__name__, ("m1",), {"size": asdict(SIZE)}) as arms:
        reported = arms.round(0, 45, {"m1": {}}).get("m1")
        notebook.failures(arms.failures)
    if reported is None:
        return
    notebook.fact("found", reported)
    notebook.figure("lowest score while quiet", min(reported["quiet_scores"]))
    notebook.figure("slowdown of kernels", reported["slowdown_percent"])
    notebook.figure("score while slow", reported["slow_scores"][-1])
    moved = [at for at, score in enumerate(reported["slow_scores"]) if score < MOVED]
    if moved:
        notebook.figure("steps until the score has moved", (moved[0] + 1) * WINDOW)
    else:
        notebook.figure("steps until the score has moved", float(10**6))
        notebook.note("The score did not move; 10^6 stands for never.")


class Arm:
    """A model in training, and a kernel that takes multiprocessors from it."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name
        self._cuda = cuda()
        self._cuda.begin()
        self._way = Timed(self._cuda)
        self._training = Training(self._cuda, Size(**options["size"]), self._way)
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._stream = self._cuda.pointer(self._cuda.stream())
        self._way.start()

    def turn(self) -> dict[str, Any]:
        """Scores of windows while quiet and while slowed, and by how much kernels were slower."""
        self._way.begin_turn()
        self._window(20)
        peer = self._window(5 * WINDOW)
        quiet = [score_beside(self._window(), peer) for _ in range(WINDOWS)]
        load, tried = self._search(peer)
        with _Neighbour(self._probe, self._stream, load):
            self._window(3)
            slow = [self._window() for _ in range(WINDOWS)]
        self._way.end_turn()
        return {
            "quiet_scores": quiet,
            "slow_scores": [score_beside(one, peer) for one in slow],
            "slowdown_percent": percent_slower(slow[-1], peer),
            "load": asdict(load),
            "tried": tried,
        }

    def _search(self, peer: Kernels) -> tuple[Load, list[Any]]:
        """The first load that slows kernels as wanted; else the lightest beyond, or the last. What
        the driver refuses is left out."""
        tried: list[tuple[Load, float]] = []
        for load in LOADS:
            try:
                with _Neighbour(self._probe, self._stream, load):
                    self._window(2)
                    tried.append((load, percent_slower(self._window(6), peer)))
            except RefusedError:
                continue
            finally:
                self._cuda.synchronize()  # slices that wait are not the next load's
            if WANTED[0] <= tried[-1][1] <= WANTED[1]:
                break
        fitting = [t for t in tried if WANTED[0] <= t[1] <= WANTED[1]]
        beyond = sorted((t for t in tried if t[1] > WANTED[1]), key=lambda t: t[1])
        chosen = (fitting or beyond or tried[-1:] or [(LOADS[0], 0.0)])[0][0]
        return chosen, [[asdict(t[0]), t[1]] for t in tried]

    def _window(self, steps: int = WINDOW) -> Kernels:
        for _ in range(steps):
            self._training.step()
        self._way.hand_over()
        return kernels_of(self._way.kernels(), leave_out="probe_spin")

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return self._way.facts()


def percent_slower(own: Kernels, peer: Kernels) -> float:
    """By medians, weighted with the time that the peer spends in each kernel."""
    common = [name for name in peer if name in own and peer[name][0] > 0]
    weight = sum(peer[name][1] for name in common)
    slower = sum(peer[name][1] * own[name][0] / peer[name][0] for name in common)
    return 100 * (slower / weight - 1) if weight else float("nan")


class RefusedError(RuntimeError):
    """The driver refused a neighbour; the message has its result."""


class _Neighbour:
    """Keeps so many multiprocessors busy in slices, on a stream of its own, while it is open."""

    def __init__(self, probe: Any, stream: int, load: Load) -> None:
        self._probe, self._stream = probe, stream
        processors, shared = _device()
        self._blocks = max(1, round(load.blocks * processors))
        self._threads, self._shared = load.threads, shared if load.is_alone else 0
        self._code = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._code:
            raise RefusedError(f"the driver refused the neighbour with {self._code}")

    def _run(self) -> None:
        """A slice every ``SLICE_S``, about as long as that."""
        ticks = int(1.9e9 * SLICE_S)
        next_s = time.monotonic()
        while not self._ends.is_set() and not self._code:
            self._code = self._probe.occupy(
                ticks, self._blocks, self._threads, self._shared, self._stream
            )
            next_s += SLICE_S
            self._ends.wait(max(0.0, next_s - time.monotonic()))


def _device() -> tuple[int, int]:
    """Multiprocessors, and bytes of shared memory that a block may have at most."""
    import torch

    if not torch.cuda.is_available():
        return 132, 0
    result = torch.cuda.get_device_properties(0)
    maximum = getattr(result, "shared_memory_per_block_optin", 64 * 1024)
    return int(result.multi_processor_count), min(int(maximum), 200 * 1024)


make_arm = Arm
EXPERIMENT = Experiment(
    key="E11",
    question="Whether a GPU that is 10 % slower shows in its score within 50 steps",
    expected=(
        Expected(figure="lowest score while quiet", minimum=QUIET, is_requirement=True),
        Expected(figure="slowdown of kernels", unit="%", minimum=7, maximum=30),
        Expected(figure="score while slow", maximum=MOVED, is_requirement=True),
        Expected(figure="steps until the score has moved", maximum=50, is_requirement=True),
    ),
    limit_s=75,
    measure=measure,
)
