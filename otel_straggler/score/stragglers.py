"""Who is listed: scores under the threshold; and who loses most against its role."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import Excess, KindOfScore, Straggler
from otel_straggler.score.medians import median_of_peers
from otel_straggler.semconv import LISTED_KINDS


def find_section_stragglers(
    scores: Floats,
    kind_of_score: KindOfScore,
    sources: Sequence[Source],
    sections: Sequence[Section],
    threshold: float,
) -> list[Straggler]:
    """List every (rank, section) with a score under the threshold (strictly).

    Sections of kind wait, checkpoint and eval are never listed: who waits is a victim. NaN is
    never listed. Cost: O(R * S).
    """
    listed = np.array([s.kind in LISTED_KINDS for s in sections], bool)
    return [
        Straggler(
            source=sources[r],
            section=sections[s].name,
            kind_of_score=kind_of_score,
            score=float(scores[r, s]),
        )
        for r, s in np.argwhere((scores < threshold) & listed[None, :]).tolist()
    ]


def find_gpu_stragglers(
    scores: Floats, kind_of_score: KindOfScore, sources: Sequence[Source], threshold: float
) -> list[Straggler]:
    """List every rank with a GPU score under the threshold (strictly). Cost: O(R)."""
    return [
        Straggler(
            source=sources[r], section="", kind_of_score=kind_of_score, score=float(scores[r])
        )
        for r in np.flatnonzero(scores < threshold).tolist()
    ]


def find_largest_excess(
    step_s: Floats, peers: Ints, sources: Sequence[Source], sections: Sequence[Section]
) -> Excess | None:
    """The rank and section with the most seconds per step beyond the median of its role.

    Args:
        step_s: (R, S) median time per step in seconds; NaN where a rank ran nothing.
        peers: (R,) peer group of each rank.

    Returns:
        None if no rank is slower than the median of its role in a section that can be listed.

    Cost: O(R * S * log R).
    """
    role_s = median_of_peers(step_s, peers)
    listed = np.array([s.kind in LISTED_KINDS for s in sections], bool)
    excess = np.where(listed[None, :], step_s - role_s, np.nan)
    if not (excess > 0).any():
        return None
    r, s = divmod(int(np.nanargmax(excess)), excess.shape[1])
    return Excess(
        source=sources[r],
        section=sections[s].name,
        excess_s=float(excess[r, s]),
        own_s=float(step_s[r, s]),
        role_median_s=float(role_s[r, s]),
    )
