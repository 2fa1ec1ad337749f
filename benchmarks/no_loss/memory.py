"""Resident memory of processes, sampled all along, and whether it is flat."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
EVERY_S = 0.5
BLOCKS = 20
RESAMPLES = 2_000


class Sampler:
    """Samples the resident memory of every watched process twice a second."""

    def __init__(self) -> None:
        self._watched: dict[str, int] = {}
        self._samples: dict[str, list[tuple[float, int]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def watch(self, name: str, pid: int) -> None:
        self._samples[name] = [(time.time(), resident_bytes(pid))]
        self._watched[name] = pid

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def of(self, name: str) -> np.ndarray:
        """(samples, 2): Unix time in seconds, MiB."""
        return np.array(self._samples[name], float).reshape(-1, 2) / (1.0, MIB)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for name, pid in list(self._watched.items()):
                size_bytes = resident_bytes(pid)
                if size_bytes:
                    self._samples[name].append((time.time(), size_bytes))


def resident_bytes(pid: int) -> int:
    """0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def trend(samples: np.ndarray, from_s: float, until_s: float) -> dict:
    """The slope from ``from_s`` on, with a 95 % interval from blocks drawn again.

    ``is_flat``: the interval holds 0, or the whole rise is below 1 % or 1 MiB: what an allocator
    does anyway.
    """
    kept = samples[(samples[:, 0] >= from_s) & (samples[:, 0] <= until_s)]
    if len(kept) < 2 * BLOCKS:
        return {"samples": len(kept)}
    rng = np.random.default_rng(0)
    blocks = np.array_split(kept, BLOCKS)
    points = np.array([[b[:, 0].mean(), np.median(b[:, 1])] for b in blocks])
    drawn = [_slope(points[rng.integers(BLOCKS, size=BLOCKS)]) for _ in range(RESAMPLES)]
    low, high = (float(q) for q in np.nanquantile(drawn, [0.025, 0.975]))
    slope = _slope(points)
    minutes = (kept[-1, 0] - kept[0, 0]) / 60
    rise_mib = slope * minutes
    return {
        "minutes": round(minutes, 1),
        "first_mib": round(float(kept[0, 1]), 2),
        "last_mib": round(float(kept[-1, 1]), 2),
        "highest_mib": round(float(kept[:, 1].max()), 2),
        "mib_per_minute": round(slope, 4),
        "interval_95": [round(low, 4), round(high, 4)],
        "rise_mib": round(rise_mib, 3),
        "is_flat": bool(low <= 0 <= high or rise_mib < max(1.0, 0.01 * kept[0, 1])),
    }


def _slope(points: np.ndarray) -> float:
    """MiB a minute; NaN if all points are one."""
    minutes = points[:, 0] / 60
    minutes = minutes - minutes.mean()
    scatter = float((minutes**2).sum())
    return float((minutes * points[:, 1]).sum() / scatter) if scatter else float("nan")
