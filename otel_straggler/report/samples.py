"""The section times of this rank since the last report, within bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from otel_straggler.model.observation import Floats, Section
from otel_straggler.record.recorder import Record
from otel_straggler.semconv import OTHER_SECTION

MOST_RUNS = 8192
"""Runs kept per section, the newest; NVRx keeps as many."""
MOST_SECTIONS = 1000


class SectionSamples:
    """Takes records as they are drained, gives the times of every section.

    State: 8 bytes and a Python int per run kept.
    """

    def __init__(self, most_runs: int = MOST_RUNS) -> None:
        self._most_runs = most_runs
        self._runs: dict[tuple[str, str, str], deque[int]] = {}

    def add(self, records: list[Record]) -> None:
        """Keep the durations; a run that an exception ended says nothing about speed."""
        for (timer, span, start_ns, context, _), _, end_ns, error, _ in records:
            if error is None and span != context.step_span:
                key = (timer.name, timer.kind, context.phase)
                runs = self._runs.get(key)
                if runs is None:
                    runs = self._begin(key)
                runs.append(max(1, end_ns - start_ns))

    def take(self) -> dict[Section, Floats]:
        """Durations in seconds by section as it is scored, oldest first; then begin anew."""
        taken, self._runs = self._runs, {}
        return {
            Section(name, kind).in_phase(phase): np.array(runs, np.int64) / 1e9  # type: ignore[arg-type]
            for (name, kind, phase), runs in taken.items()
        }

    def _begin(self, key: tuple[str, str, str]) -> deque[int]:
        if len(self._runs) >= MOST_SECTIONS:
            key = (OTHER_SECTION, "other", "")
        return self._runs.setdefault(key, deque(maxlen=self._most_runs))


def merged(times: Mapping[Section, Floats]) -> dict[Section, Floats]:
    """One entry per name: a section that was opened with two kinds has the first."""
    by_name: dict[str, tuple[Section, list[Floats]]] = {}
    for section, durations_s in times.items():
        by_name.setdefault(section.name, (section, []))[1].append(durations_s)
    return {section: np.concatenate(parts) for section, parts in by_name.values()}
