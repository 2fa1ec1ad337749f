"""What an experiment is: a question, what is expected, and a function that measures."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.presence import FAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A figure before it is measured.

    Attributes:
        figure: its name.
        unit: of both bounds; "" if none.
        minimum, maximum: where it should lie, both included; None = no bound.
        is_requirement: outside is "missed"; else only "differs": the guess was wrong.
    """

    figure: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    is_requirement: bool = False

    def words(self) -> str:
        """As a reader wants it."""
        unit = f" {self.unit}" if self.unit else ""
        if self.minimum is not None and self.maximum is not None:
            if self.minimum == self.maximum:
                return f"{self.minimum:,.10g}{unit}"
            return f"{self.minimum:,.10g} to {self.maximum:,.10g}{unit}"
        if self.maximum is not None:
            return f"≤ {self.maximum:,.10g}{unit}"
        return f"≥ {self.minimum:,.10g}{unit}" if self.minimum is not None else "open"

    def verdict(self, value: float | None) -> str:
        """met, missed, differs, not measured, or noted where nothing was expected."""
        if value is None:
            return "not measured"
        if self.minimum is None and self.maximum is None:
            return "noted"
        is_low = self.minimum is not None and not value >= self.minimum
        is_high = self.maximum is not None and not value <= self.maximum
        if not is_low and not is_high:
            return "met"
        return "missed" if self.is_requirement else "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One of the registry.

    Attributes:
        key: E0 and so on.
        question: what it decides.
        expected: figures, in the order of the table.
        limit_s: it is ended then.
        measure: fills the notebook.
        budget_s: of a visit to a GPU, where time is short; 0: only what the others leave.
    """

    key: str
    question: str
    expected: tuple[Expected, ...]
    limit_s: float
    measure: Callable[[Notebook], None] = field(compare=False)
    budget_s: float = 0.0


class Notebook:
    """Where an experiment writes, line by line: what was written before a crash stays.

    Args:
        path: of the lines.
        is_quick: fewer rounds, for a quick check.
        limit_s: how long the experiment has from now on.
    """

    def __init__(self, path: Path, *, is_quick: bool = False, limit_s: float = 60) -> None:
        self._path = path
        self.is_quick = is_quick
        self._until_s = time.monotonic() + limit_s
        self._noted: set[str] = set()

    def left_s(self) -> float:
        """Until it is ended, whatever it does."""
        return self._until_s - time.monotonic()

    def rounds(
        self, wanted: int, spare_s: float = 4.0, within_s: float = math.inf
    ) -> Iterator[int]:
        """0, 1, ...; fewer, and a note, where the time ends ``spare_s`` after the next one, or
        ``within_s`` after the first began."""
        longest_s, until_s = 0.0, time.monotonic() + within_s
        for at in range(wanted):
            left_s = min(self.left_s() - spare_s, until_s - time.monotonic())
            if at > 0 and left_s < longest_s:
                self.note(f"Time was left for {at} of {wanted} rounds.")
                return
            began_s = time.monotonic()
            yield at
            longest_s = max(longest_s, time.monotonic() - began_s)

    def figure(self, name: str, value: float | Mapping[str, Any] | None, **more: Any) -> None:
        """A number, or what ``figures.spread()`` gives. None and NaN are left out."""
        if value is None:
            return
        figure = dict(value) if isinstance(value, Mapping) else {"value": value}
        if not math.isfinite(figure["value"]):
            return
        self._write({"figure": name, **figure, **more})

    def failures(self, by_arm: Mapping[str, str]) -> None:
        """Arms that were dropped; they stand below the table, once each."""
        for words in by_arm.values():
            if words not in self._noted:
                self.note(words)
            self._noted.add(words)

    def steps(self, wanted: int) -> int:
        """So many, or a few where the GPU is only faked."""
        return max(2, wanted // 20) if os.environ.get(FAKE) else wanted

    def fact(self, name: str, value: Any) -> None:
        """Something that is no number to judge."""
        self._write({"fact": name, "is": value})

    def note(self, text: str) -> None:
        """A sentence below the table."""
        self._write({"note": text})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_notebook(path: Path) -> dict[str, Any]:
    """``figures``, ``facts`` and ``notes``; the last line may be torn."""
    result: dict[str, Any] = {"figures": {}, "facts": {}, "notes": []}
    if not path.exists():
        return result
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "figure" in line:
            result["figures"][line.pop("figure")] = line
        elif "fact" in line:
            result["facts"][line["fact"]] = line["is"]
        else:
            result["notes"].append(line["note"])
    return result
