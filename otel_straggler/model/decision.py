"""What a person has decided about the verdicts on a subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Action = Literal["dismiss", "mute", "restore"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_HANG: Final = "hang:"


def hang_subject(group: str) -> str:
    """The ``subject_id`` of a world that is stuck or lost.

    >>> hang_subject("actor"), hang_subject("")
    ('hang:actor', 'hang:')
    """
    return _HANG + group


def hung_group(subject_id: str) -> str | None:
    """The group of a :func:`hang_subject`; None if it is none."""
    return subject_id.removeprefix(_HANG) if subject_id.startswith(_HANG) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision; the newest on a subject counts.

    Attributes:
        action: ``dismiss``: it was wrong, nobody is called for it until the subject was well and is
            called slow anew; of a hang: until there was progress and it hangs anew. ``mute``:
            nobody is called until ``until_ns``, whatever it does.
            ``restore``: the one before no longer counts.
        run_id, subject_id: about whom.
        reason, by: why, and who.
        at_ns: when, on the collector's clock.
        until_ns: the end of a mute; None for the others.
        verdict_at_ns: sender's time of the verdict's newest change, which the person saw; of a
            hang, when it began, on the collector's clock.
        cause: of that verdict.
    """

    action: Action
    run_id: str
    subject_id: str
    reason: str
    by: str = ""
    at_ns: int
    until_ns: int | None = None
    verdict_at_ns: int = 0
    cause: str = "unknown"
