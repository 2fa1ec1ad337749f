"""What the history of a collector costs: bytes kept, and time of the thread that scores.

    python -m benchmarks.history

1,000 ranks x 10 sections, windows of 20 steps with 5 % noise that no compression can take away,
and the references of all their devices. ``on_scoring_thread_ms`` is all that scoring waits for;
the rest happens on the writer's thread. Alongside, in the same run, the plain write of as many
bytes with fsync: what the disk alone takes.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from otel_straggler.collector.history.history import History
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

RANKS, SECTIONS, STEPS, WINDOWS = 1_000, 10, 20, 60
SAVES = 20


def rows_of(number: int, rng: np.random.Generator) -> ObservationBatch:
    """One window."""
    shape = (RANKS, SECTIONS, STEPS)
    source, section, step = (axis.ravel() for axis in np.indices(shape))
    step = step + number * STEPS
    return ObservationBatch(
        sources=tuple(
            Source(
                run_id="run",
                rank=rank,
                job="job",
                node=f"node-{rank // 8}",
                local_rank=rank % 8,
                device=f"GPU-{rank:032x}",
                session_id=f"{rank:016x}",
                world_size=RANKS,
            )
            for rank in range(RANKS)
        ),
        sections=tuple(Section(f"section-{i}") for i in range(SECTIONS)),
        source=source.astype(np.int32),
        section=section.astype(np.int32),
        kernel=np.full(len(source), -1, np.int32),
        step=step,
        start_ns=step * 10**9 + section + 1,
        duration_s=rng.lognormal(-3.0, 0.05, size=shape).ravel(),
        seq=step,
    )


def scored() -> tuple[list[WindowScores], Scorer]:
    """All windows, and the scorer with its references."""
    rng = np.random.default_rng(0)
    scorer = Scorer(ScoreSettings(window_steps=STEPS))
    windows: list[WindowScores] = []
    for number in range(WINDOWS):
        scorer.observe(rows_of(number, rng), 0)
        windows += scorer.close_due(0)
    return windows + scorer.close_all(), scorer


def keep_windows(history: History, windows: list[WindowScores]) -> tuple[float, float]:
    """Milliseconds of the scoring thread per window (median), and seconds until all is written."""
    began_s = time.perf_counter()
    handed_ms = []
    for window in windows:
        at_s = time.perf_counter()
        history.put(windows=[window])
        handed_ms.append((time.perf_counter() - at_s) * 1e3)
    assert history.flush(600)
    return statistics.median(handed_ms), time.perf_counter() - began_s


def save_states(history: History, scorer: Scorer) -> tuple[float, float]:
    """The same for states, each of which differs from the one before."""
    handed_ms, written_s = [], []
    for number in range(SAVES):
        at_s = time.perf_counter()
        state = scorer.state()
        handed_ms.append((time.perf_counter() - at_s) * 1e3)
        state["turn"] = number
        history.put(states=state)
        assert history.flush(600)
        written_s.append(time.perf_counter() - at_s)
    return statistics.median(handed_ms), statistics.median(written_s)


def plain_write_s(folder: Path, n_bytes: int) -> float:
    """A file of random bytes, down to the disk."""
    content = os.urandom(n_bytes)
    began_s = time.perf_counter()
    with (folder / "plain").open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began_s


def main() -> None:
    """Measure and print."""
    windows, scorer = scored()
    assert len(windows) == WINDOWS
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "history.db"
        history = History(path, max_waiting_bytes=2**40)
        history.open()
        window_ms, windows_s = keep_windows(history, windows)
        history.close()
        size_bytes = path.stat().st_size
        history = History(path)
        history.open()
        state_ms, state_s = save_states(history, scorer)
        lost = sum(history.counts().failures.values())
        history.close()
        with_state_bytes = path.stat().st_size
        disk_s = plain_write_s(Path(name), size_bytes)
    assert lost == 0
    table_bytes = RANKS * SECTIONS * 8 * 6
    result = {
        "ranks": RANKS,
        "sections": SECTIONS,
        "windows": WINDOWS,
        "bytes_per_1000_ranks_and_window": round(size_bytes / WINDOWS),
        "bytes_of_its_six_tables_in_memory": table_bytes,
        "ratio_to_memory": round(size_bytes / WINDOWS / table_bytes, 3),
        "days_of_windows_of_20_s_in_512_mib": round(
            512 * 2**20 / (size_bytes / WINDOWS) * 20 / 86_400, 2
        ),
        "window_on_scoring_thread_ms": round(window_ms, 3),
        "window_on_writer_thread_ms": round(windows_s / WINDOWS * 1e3, 1),
        "writer_mb_per_s": round(size_bytes / 1e6 / windows_s, 1),
        "writer_mb_per_s_of_tables": round(table_bytes * WINDOWS / 1e6 / windows_s, 1),
        "disk_alone_mb_per_s": round(size_bytes / 1e6 / disk_s, 1),
        "state_on_scoring_thread_ms": round(state_ms, 2),
        "state_until_written_ms": round(state_s * 1e3, 1),
        "state_bytes": with_state_bytes - size_bytes,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
