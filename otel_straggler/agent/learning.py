"""The answer to a request to learn timeouts, from the intervals of one rank or of a node's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from otel_straggler.agent.beats import GAPS, INITIAL, OUTSIDE, section_key
from otel_straggler.agent.frames import Message, ProtocolError, texts, whole
from otel_straggler.agent.timeouts_json import heartbeat_values, section_values
from otel_straggler.detect.hangs.rank_timeouts import (
    WARMUP,
    HeartbeatTimeouts,
    Intervals,
    LearningRules,
    SectionTimeouts,
    learned_heartbeat_timeouts,
    learned_section_timeouts,
    merged,
)

if TYPE_CHECKING:
    from otel_straggler.agent.ranks import WatchedRank

MAX_KEPT: Final = 8
"""Sets of intervals: the ranks of a node ask for the same one at about the same time."""


def learned(
    asked: Message,
    observed: Sequence[Mapping[str, Intervals]],
    sections: Sequence[str],
    heartbeat: HeartbeatTimeouts,
    section: SectionTimeouts,
    rules: LearningRules,
) -> Message | None:
    """New timeouts as a message; None if there is not enough data.

    Args:
        asked: the message "calculate".
        observed: intervals by rank, as :meth:`BeatReader.intervals` gives them.
        heartbeat, section: in use now.

    Raises:
        ProtocolError: the request makes no sense.
    """

    def of_all(key: str) -> Intervals:
        return merged(one[key] for one in observed if key in one)

    if kind_of(asked) == "heartbeat":
        new = learned_heartbeat_timeouts(of_all(INITIAL), of_all(GAPS), heartbeat, rules)
        return None if new is None else {"type": "timeouts", "heartbeat": heartbeat_values(new)}
    sections = [name for name in sections if name != WARMUP]
    selected = None
    if asked.get("selected") is not None:
        selected = texts(asked, "selected", len(sections))
        if unknown := set(selected) - set(sections):
            raise ProtocolError("field", f"selected has sections not watched: {unknown!r:.100}")
    result = learned_section_timeouts(
        {name: of_all(section_key(name)) for name in sections},
        of_all(OUTSIDE),
        section,
        rules,
        selected,
        with_out_of_section=bool(asked.get("out_of_section")),
    )
    return None if result is None else {"type": "timeouts", "section": section_values(result)}


def kind_of(asked: Message) -> str:
    """Raises: ProtocolError if it asks for something else than timeouts."""
    kind = asked.get("kind")
    if kind not in ("heartbeat", "section"):
        raise ProtocolError("field", f"kind is {kind!r:.100}; expected heartbeat or section")
    return str(kind)


class Learned:
    """Answers of one agent. The first rank that asks for the n-th time settles the intervals for
    all, so ranks whose timeouts are equal go on with equal ones, and nobody waits for anybody. What
    a rank says of its own timeouts concerns no other."""

    def __init__(self, rules: LearningRules) -> None:
        self._rules = rules
        self._kept: OrderedDict[object, dict[str, Intervals]] = OrderedDict()

    def answer(
        self,
        watched: WatchedRank,
        asked: Message,
        observe: Callable[[], Sequence[Mapping[str, Intervals]]],
    ) -> Message | None:
        """None if there is not enough data yet.

        Args:
            observe: gives the intervals of all ranks of the attempt, by rank.

        Raises:
            ProtocolError: the request makes no sense.
        """
        sections = tuple(watched.sections)
        key = (watched.attempt, whole(asked, "number"), kind_of(asked), sections)
        intervals = self._kept.get(key) or _of_all(observe(), sections)
        answer = learned(
            asked, [intervals], sections, watched.heartbeat, watched.section, self._rules
        )
        if answer is not None:
            self._kept[key] = intervals
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return answer


def _of_all(
    observed: Sequence[Mapping[str, Intervals]], sections: Sequence[str]
) -> dict[str, Intervals]:
    """Intervals of several ranks as those of one."""
    keys = (INITIAL, GAPS, OUTSIDE, *map(section_key, sections))
    return {key: merged(one[key] for one in observed if key in one) for key in keys}
