"""The runs of a row, trained by real ranks and scored by a real collector; and what it costs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.inside_backward.faults import ONSETS, WHERE, Fault, plant
from benchmarks.inside_backward.grading import Grade, grade
from benchmarks.inside_backward.jobs import Job
from benchmarks.inside_backward.rows import Row
from benchmarks.inside_backward.running import WARM_UP_STEPS, Scene
from benchmarks.inside_backward.spans import own_times, spans_of
from benchmarks.trainers.loops import LOOPS

Json = dict[str, Any]
RANKS: Final = 4
DOSE: Final = 0.20
"""Of the own time of a section on a rank that is well."""
PLACES: Final = tuple(name for name in WHERE if name != "layer")
PROGRAM: Final = ("-m", "benchmarks.trainers.ranks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run and what the report says about it; ``fault`` is None if nothing was planted."""

    run_id: str
    fault: Fault | None
    grade: Grade


class TrainingJob:
    """The ranks of a row and the collector they report to; ``close()`` ends all."""

    def __init__(self, name: str, folder: Path, *, come_first: bool) -> None:
        self._name = name
        self._folder = folder
        self._plan = {"scale": LOOPS[name].scale}
        self._scene = Scene()
        log = folder / f"{name}.log"
        self._job = Job(name, RANKS, log, come_first=come_first, program=PROGRAM)

    def close(self) -> None:
        self._job.close()
        self._scene.close()

    def results(self, n_of_place: int, n_healthy: int, steps: int) -> Iterator[Result]:
        """So many runs for each place of a fault, and so many without, in an order that is drawn.
        A first healthy one says what the dose is in seconds."""
        self._report(f"{self._name}.base", None, steps)
        base_s = own_times(spans_of(self._scene.sink, f"{self._name}.base"), WARM_UP_STEPS)
        for number, fault in enumerate(self._faults(base_s, n_of_place, n_healthy)):
            self._scene.sink.requests.clear()
            run_id = f"{self._name}.{number}"
            run = self._report(run_id, fault, steps)
            yield Result(run_id=run_id, fault=fault, grade=grade(run, fault))

    def overhead(self, rounds: int, steps: int) -> Json:
        """A step with and without, as pairs of runs that take turns: medians of steps and of the
        ratios."""
        pairs = [self._pair(at, steps) for at in range(rounds)]
        return {
            "rounds": rounds,
            "with_ms": round(1e3 * median(watched for watched, _ in pairs), 3),
            "without_ms": round(1e3 * median(plain for _, plain in pairs), 3),
            "ratio": round(median(watched / plain for watched, plain in pairs), 5),
        }

    def _pair(self, at: int, steps: int) -> tuple[float, float]:
        times_s = {}
        for is_watched in (True, False) if at % 2 else (False, True):
            file = self._folder / "step_s"
            self._train(f"{self._name}.cost.{at}", {}, steps, is_watched, str(file))
            times_s[is_watched] = float(file.read_text())
        return times_s[True], times_s[False]

    def _faults(
        self, base_s: Mapping[str, float], n_of_place: int, n_healthy: int
    ) -> list[Fault | None]:
        chance = random.Random(self._name)
        loop = LOOPS[self._name]
        row = Row(title=loop.title, training=self._name, ranks=RANKS, sections=loop.sections)
        faults: list[Fault | None] = [
            plant(row, base_s, place, DOSE, chance.randrange(RANKS), chance.choice(ONSETS))
            for place in PLACES
            for _ in range(n_of_place)
        ]
        faults += [None] * n_healthy
        chance.shuffle(faults)
        return faults

    def _report(self, run_id: str, fault: Fault | None, steps: int) -> Json:
        added = {} if fault is None else {fault.rank: fault.sleeps}
        self._train(run_id, added, steps, True, "")
        return self._scene.report(run_id, steps - LOOPS[self._name].unseen_steps)

    def _train(
        self, run_id: str, added: Mapping[int, Json], steps: int, is_watched: bool, file: str
    ) -> None:
        run = {
            "run_id": run_id,
            "endpoint": self._scene.collector.endpoint,
            "steps": steps,
            "is_watched": is_watched,
            "times_file": file,
            **self._plan,
        }
        self._job.train(run, added)
