"""Culprits of a hang by flight records, where heartbeats show no difference between ranks, or show
one that misleads: a rank that skipped a collective and went on is ahead of those it keeps waiting.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from otel_straggler.detect.hangs.collectives import Cause, HangFindings
from otel_straggler.detect.hangs.states import (
    LATE,
    NO_OPEN_SECTION,
    STUCK,
    Blame,
    HeartbeatTable,
)
from otel_straggler.model.observation import NO_STEP, Codes

_CORRECTED = frozenset({"never_joined", "joined_but_stuck"})
_PROVEN = frozenset({"never_joined", "other_end"})
"""A rank that does not answer may be waited for; that it is lost, heartbeats say."""


def corrected(
    blame: Blame | None, findings: HangFindings | None, heartbeats: HeartbeatTable, states: Codes
) -> Blame | None:
    """The blame of flight records, if they prove who has not entered a collective that others wait
    in; else that of heartbeats."""
    if blame is None or findings is None or blame.kind not in _CORRECTED:
        return blame
    proven = [cause.rank for cause in findings.causes if cause.why in _PROVEN]
    culprits = np.isin(heartbeats.ranks, proven)
    if not culprits.any():
        return blame
    waits = (states == STUCK) | (states == LATE)
    return Blame("never_joined", culprits, waits & ~culprits)


def located(findings: HangFindings, heartbeats: HeartbeatTable) -> HangFindings:
    """With the open section and the step of each culprit."""
    at = {rank: index for index, rank in enumerate(heartbeats.ranks.tolist())}
    causes = (_located(cause, heartbeats, at.get(cause.rank)) for cause in findings.causes)
    return replace(findings, causes=tuple(causes))


def _located(cause: Cause, heartbeats: HeartbeatTable, index: int | None) -> Cause:
    if index is None:
        return cause
    code, step = int(heartbeats.section[index]), int(heartbeats.step[index])
    section = "" if code == NO_OPEN_SECTION else heartbeats.sections[code]
    return replace(cause, section=section, step=None if step == NO_STEP else step)
