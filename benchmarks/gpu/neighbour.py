"""A neighbour on the GPU: a kernel that takes multiprocessors from a training, and slows it down.

It runs in a thread of the training's own process, on a stream of its own. One in another process
would have time slices, which stop all kernels now and then and make few of them longer by much.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu.kernel_medians import Kernels

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


def search(
    neighbour: Callable[[Load], Neighbour],
    slower: Callable[[], float],
    settle: Callable[[], Any],
    synchronize: Callable[[], None],
    wanted: tuple[float, float],
) -> tuple[Load, list[Any]]:
    """The first load that slows kernels as wanted; else the lightest beyond, or the last. What the
    driver refuses is left out.

    Args:
        neighbour: makes one of a load.
        slower: percent that kernels are slower now.
        settle: some steps with a new neighbour, before it is measured.
        synchronize: waits for the GPU.
        wanted: percent, from and to.
    """
    tried: list[tuple[Load, float]] = []
    for load in LOADS:
        try:
            with neighbour(load):
                settle()
                tried.append((load, slower()))
        except RefusedError:
            continue
        finally:
            synchronize()  # slices that wait are not the next load's
        if wanted[0] <= tried[-1][1] <= wanted[1]:
            break
    fitting = [t for t in tried if wanted[0] <= t[1] <= wanted[1]]
    beyond = sorted((t for t in tried if t[1] > wanted[1]), key=lambda t: t[1])
    chosen = (fitting or beyond or tried[-1:] or [(LOADS[0], 0.0)])[0][0]
    return chosen, [[asdict(t[0]), t[1]] for t in tried]


def percent_slower(own: Kernels, peer: Kernels) -> float:
    """By medians, weighted with the time that the peer spends in each kernel."""
    common = [name for name in peer if name in own and peer[name][0] > 0]
    weight = sum(peer[name][1] for name in common)
    slower = sum(peer[name][1] * own[name][0] / peer[name][0] for name in common)
    return 100 * (slower / weight - 1) if weight else float("nan")


class RefusedError(RuntimeError):
    """The driver refused a neighbour; the message has its result."""


class Neighbour:
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
