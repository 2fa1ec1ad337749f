"""What is normal for a device, or a run, by its own past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats
from otel_straggler.model.verdict import Beginning
from otel_straggler.score.verdicts.keyed import KeyedTables

HALF_LIFE_S = 24 * 3600.0
LEAST_WEIGHT = 3.0
"""Evaluations, faded, below which there is no reference."""
MAX_SUBJECTS = 50_000
MAX_NAMES = 1_000


class OwnHistory:
    """Faded means of log values by subject and name.

    For a device the value is its log time relative to its peers, so that a change of the whole
    run is none of its own; for a run it is the log of its median step, so that a slowdown of
    everybody shows although no peer is left to compare with. It labels and finds what is uniform;
    alone it calls nobody slow, because noise of the work would do.

    mean <- (w mean + value) / (w + 1), w <- w + 1, and w halves in ``half_life_s`` of the
    sender's time. A subject that is slow should not be eligible while it is, or its slowness
    becomes its normal.

    State: 24 bytes per subject and name; at most 50,000 subjects, the longest unseen go first.

    >>> history = OwnHistory()
    >>> for minute in range(5):
    ...     history.update(["gpu"], ["forward"], np.zeros((1, 1)), None, minute * 60 * 10**9)
    >>> history.reference(["gpu"], ["forward"], 10**12).item()
    0.0
    """

    def __init__(self, half_life_s: float = HALF_LIFE_S, max_subjects: int = MAX_SUBJECTS) -> None:
        self._half_life_s = half_life_s
        self._tables = KeyedTables(("mean", "weight", "seen_s"), max_subjects, MAX_NAMES)

    def update(
        self,
        keys: Sequence[str],
        names: Sequence[str],
        value: Floats,
        eligible: npt.NDArray[np.bool_] | None,
        now_ns: int,
    ) -> None:
        """Take the values of an evaluation in.

        Args:
            keys: R subjects, each once; names: S names, each once.
            value: (R, S) logs; what is not finite is left out.
            eligible: (R, S) which of them are normal; None for all.
            now_ns: the sender's clock. If it runs backwards nothing fades.

        Cost: O(R S), and a copy of the state when something is new.
        """
        place = self._tables.place(keys, names)
        taken = np.isfinite(value) if eligible is None else np.isfinite(value) & eligible
        weight = self._weight(place, now_ns)
        mean, seen_s = self._tables.get("mean", place), self._tables.get("seen_s", place)
        moved = (weight * mean + np.where(taken, value, 0.0)) / (weight + 1.0)
        kept = self._tables.get("weight", place)
        self._tables.put("mean", place, np.where(taken, moved, mean))
        self._tables.put("weight", place, np.where(taken, weight + 1.0, kept))
        self._tables.put("seen_s", place, np.where(taken, np.fmax(seen_s, now_ns / 1e9), seen_s))

    def reference(self, keys: Sequence[str], names: Sequence[str], now_ns: int) -> Floats:
        """(R, S) normal log values; NaN where fewer than 3 evaluations are remembered.

        Ask before :meth:`update`, or the value is compared with itself. Cost: O(R S).
        """
        place = self._tables.place(keys, names)
        is_enough = self._weight(place, now_ns) >= LEAST_WEIGHT
        return np.where(is_enough, self._tables.get("mean", place), np.nan)

    def state(self) -> dict[str, Any]:
        """Lists and arrays, for a restart."""
        return self._tables.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`; what was there is forgotten."""
        self._tables.restore(state)

    def _weight(self, place: Any, now_ns: int) -> Floats:
        age_s = np.maximum(0.0, now_ns / 1e9 - self._tables.get("seen_s", place))
        # Past 1,000 half-lives nothing is remembered; the cap keeps the power finite.
        faded = np.exp2(-np.minimum(age_s / self._half_life_s, 1000.0))
        weight: Floats = self._tables.get("weight", place) * faded
        return weight


def how_it_began(reference: float, floor: float) -> Beginning:
    """Whether a subject that is slow now was slow as long as it is known, or became so.

    Args:
        reference: its normal log time relative to its peers; NaN if not known.
        floor: log of the slowdown from which it is called slow, > 0.

    Returns:
        "became" if it was normally less than half as slow as that, else "born".

    >>> how_it_began(0.01, 0.05), how_it_began(0.2, 0.05), how_it_began(float("nan"), 0.05)
    ('became', 'born', 'unknown')
    """
    if math.isnan(reference):
        return "unknown"
    return "became" if reference < 0.5 * floor else "born"
