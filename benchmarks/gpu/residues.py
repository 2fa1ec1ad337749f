"""Rounds before, with and after timing, and what is left of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.experiment import Notebook
from benchmarks.gpu.figures import Figure, percent_over

NEVER = ("never", "also_never")
"""Arms that never time: what they differ by is what this can see."""
RESOLUTION = 0.2
"""Percent."""
Round = dict[str, dict[str, Any]]


@dataclass
class Phases:
    """Answers of all arms, by round, in three phases."""

    before: list[Round] = field(default_factory=list)
    during: list[Round] = field(default_factory=list)
    after: list[Round] = field(default_factory=list)

    def residue(self, name: str, what: str) -> Figure | None:
        """Percent that ``what`` of an arm is more afterwards than it was before, relative to
        ``never``."""
        return residue(_values(self.before, what), _values(self.after, what), name)

    def cost(self, name: str, what: str) -> Figure | None:
        """The same while it is timed."""
        return residue(_values(self.before, what), _values(self.during, what), name)


def run_phases(
    notebook: Notebook,
    wanted: tuple[int, int, int],
    work: Callable[[int, str], Round],
    write: Callable[[Phases], None],
) -> Phases:
    """As many rounds of each phase as are wanted, or as there is time for, in that proportion.

    Args:
        notebook: whose time it is.
        wanted: rounds before, during, after.
        work: one round, from its number and ``off`` or ``on``.
        write: called after every round of the last phase.
    """
    result = Phases()
    began_s = time.monotonic()
    result.before.append(work(0, "off"))
    round_s = time.monotonic() - began_s
    before, during, after = rounds_in(wanted, (notebook.left_s() - 5.0) / round_s)
    if (before, during, after) != wanted:
        notebook.note(f"Time was left for {before}, {during}, {after} of {wanted} rounds.")
    for at in range(1, before):
        result.before.append(work(at, "off"))
    for at in range(before, before + during):
        result.during.append(work(at, "on"))
    for at in range(before + during, before + during + after):
        result.after.append(work(at, "off"))
        write(result)
    return result


def rounds_in(wanted: tuple[int, int, int], possible: float) -> tuple[int, int, int]:
    """Rounds of each phase that fit, in the proportion that is wanted; two before and after it and
    one between at least.

    >>> rounds_in((8, 3, 12), 100), rounds_in((8, 3, 12), 11.5), rounds_in((8, 3, 12), 1)
    ((8, 3, 12), (4, 1, 6), (2, 1, 2))
    """
    share = min(1.0, possible / sum(wanted))
    before, during, after = (int(share * rounds) for rounds in wanted)
    return max(2, before), max(1, during), max(2, after)


def write_noise(notebook: Notebook, reported: Figure | None) -> None:
    """A note where two arms that never timed differ by more than is looked for."""
    if reported is not None and abs(reported["value"]) > RESOLUTION:
        notebook.note(
            f"Two processes that never timed differ by {reported['value']} %: "
            f"{RESOLUTION} % cannot be seen on this machine as busy as it was."
        )


def residue(
    before: Sequence[dict[str, float]], after: Sequence[dict[str, float]], name: str
) -> Figure | None:
    """Percent that ``name`` is slower afterwards than it was before, relative to ``never``.

    >>> never = {"never": 10.0}
    >>> residue([{**never, "m1": 11.0}], [{**never, "m1": 12.1}], "m1")["value"]
    10.0
    """
    early, late = percent_over(before, name, "never"), percent_over(after, name, "never")
    if early is None or late is None:
        return None

    def relative(value: float) -> float:
        percent = 100 * ((1 + value / 100) / (1 + early["value"] / 100) - 1)
        return float(round(percent, 3))

    return {**late, "value": relative(late["value"]), "iqr": [relative(v) for v in late["iqr"]]}


def _values(rounds: Sequence[Round], what: str) -> list[dict[str, float]]:
    return [{name: one[what] for name, one in answers.items()} for answers in rounds]
