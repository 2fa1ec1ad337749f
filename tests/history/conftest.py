"""What the tests of the history share: windows, verdicts, a clock that stands still."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.history import History
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict

SECTIONS = ("forward", "backward", "data")
STEPS = 10


class Clock:
    """The time of day, as the test says."""

    def __init__(self) -> None:
        self.now_s = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now_s


def window(number: int = 0, ranks: int = 4, run_id: str = "run", **changes: Any) -> WindowScores:
    """A closed window of ten steps, with times that do not compress well."""
    shape = (ranks, len(SECTIONS), STEPS)
    times_s = np.random.default_rng(number).lognormal(-3, 0.05, shape)
    sources = tuple(
        Source(
            run_id=run_id,
            rank=rank,
            job="job",
            node=f"node-{rank // 8}",
            local_rank=rank % 8,
            device=f"GPU-{rank:08x}",
            world_size=ranks,
            role="actor" if rank % 2 else "critic",
            **changes,
        )
        for rank in range(ranks)
    )
    source, section, step = (a.ravel() for a in np.indices(shape))
    scorer = Scorer(ScoreSettings(window_steps=None))
    scorer.observe(
        ObservationBatch(
            sources=sources,
            sections=tuple(Section(name) for name in SECTIONS),
            source=source.astype(np.int32),
            section=section.astype(np.int32),
            kernel=np.full(source.shape, -1, np.int32),
            step=step + number * STEPS,
            start_ns=(step + number * STEPS) * 10**9,
            duration_s=times_s.ravel(),
            seq=step + number * STEPS,
        ),
        0,
    )
    (closed,) = scorer.close_all()
    return closed


def verdict(number: int = 0, run_id: str = "run", **changes: Any) -> Verdict:
    values: Mapping[str, Any] = {
        "run_id": run_id,
        "subject_id": f"rank/{number}",
        "scope": "rank",
        "rank": number,
        "state": "confirmed",
        "slowdown": 1.5,
        "at_step": number,
        "at_ns": number * 10**9,
        "sentence": f"rank {number} is slow — “forward”",
        **changes,
    }
    return Verdict(**values)


class Kit:
    """The helpers above, for tests (which cannot import a conftest)."""

    window = staticmethod(window)
    verdict = staticmethod(verdict)


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Of the file; for a test that is marked so, the URL of an empty PostgreSQL database, too."""
    if getattr(request, "param", "") == "postgres":
        return request.getfixturevalue("database").url
    return tmp_path / "history.db"


class Opened(History):
    """A history that remembers what it restored."""

    restored: dict[str, Any]


@pytest.fixture
def begin(path: Path, clock: Clock) -> Iterator[Any]:
    """Open histories on the path; what a test leaves open is closed."""
    opened: list[History] = []

    def start(**changes: Any) -> Opened:
        clocks = {"wall_s": clock, "monotonic_s": clock}
        history = Opened(changes.pop("path", path), **{**clocks, **changes})
        opened.append(history)
        history.restored = history.open()
        return history

    yield start
    for history in opened:
        history.close()


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder that this process may read but not write to, with a history in it. Root, who may
    all, is nobody for the time of the test."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        history = History(folder / "readable.db")
        history.open()
        history.put(windows=[window()])
        history.close()
        (folder / "readable.db").chmod(0o644)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        yield folder
        os.seteuid(user)
        folder.chmod(0o755)
