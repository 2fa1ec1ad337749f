"""Whether it is all ranks that have become slower, or only some of them.

The median of a group of peers rises as well where half of its ranks are slower, and so few peers
are left that nobody is compared: of two, either may be the slow one. Each rank's own past tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.rank import Source
from otel_straggler.score.medians import median_of
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.own_past import Rises

NOT_ALL = 0.1
"""A slowdown is not of all if so many of the ranks are surely as fast as before."""
SIGMAS = 2.0
MOST_NAMED = 4


@dataclass(frozen=True, slots=True, eq=False)
class OnlySome:
    """(R,) which ranks have surely become slower, and which surely have not."""

    slower: Flags
    same: Flags


def only_some(ranks: Rises, rise: float) -> OnlySome | None:
    """Who has become slower, where it is surely not all; None where it may be all, or where the
    ranks' own pasts are not known or do not fit the rise of the run.

    Args:
        ranks: (R, 1) of each rank's own work, by its own past.
        rise: of the run, logarithmic, as its groups of peers tell it.
    """
    own, error = ranks.rise[:, 0], SIGMAS * float(ranks.error[0])
    if not rise > 0.0 or np.isnan(own).any():
        return None
    found = OnlySome(slower=own - error >= 0.5 * rise, same=own + error < 0.5 * rise)
    fits = abs(median_of(own) - rise) <= 0.25 * rise + error
    is_some = fits and found.slower.any() and found.same.mean() >= NOT_ALL
    return found if is_some else None


def in_words(some: OnlySome, sources: list[Source]) -> str:
    """How many ranks, and which, if one side is few.

    >>> sources = [Source(run_id="r", rank=rank) for rank in range(8)]
    >>> in_words(OnlySome(np.arange(8) < 2, np.arange(8) >= 2), sources)
    '2 of its 8 ranks take longer than before (0, 1), the others do not'
    >>> in_words(OnlySome(np.arange(8) > 0, np.arange(8) == 0), sources)
    '7 of its 8 ranks take longer than before, the others do not (0)'
    >>> in_words(OnlySome(np.arange(8) > 4, np.arange(8) < 4), sources)
    'at least 4 of its 8 ranks take no longer than before'
    """
    slower, same = (
        sorted(sources[row].rank for row in np.flatnonzero(side).tolist())
        for side in (some.slower, some.same)
    )
    if len(slower) + len(same) < len(sources):
        takes = "takes" if len(same) == 1 else "take"
        return f"at least {len(same):,} of its {len(sources):,} ranks {takes} no longer than before"
    takes = "takes" if len(slower) == 1 else "take"
    told = f"{len(slower):,} of its {len(sources):,} ranks {takes} longer than before"
    if len(slower) <= MOST_NAMED:
        return f"{told}{_numbers(slower)}, the others do not"
    return f"{told}, the others do not{_numbers(same)}"


def _numbers(ranks: list[int]) -> str:
    return f" ({', '.join(map(str, ranks))})" if len(ranks) <= MOST_NAMED else ""
