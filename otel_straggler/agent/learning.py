"""What a request to learn timeouts comes to, from the intervals of one rank or of a node's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

    if asked.get("kind") == "heartbeat":
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


class Learned:
    """Answers of one agent. The first rank that asks for the n-th time settles the answer for all:
    they go on with equal timeouts, and nobody waits for anybody."""

    def __init__(self, rules: LearningRules) -> None:
        self._rules = rules
        self._attempt = -1
        self._answers: dict[tuple[Any, ...], Message] = {}

    def answer(
        self, watched: WatchedRank, asked: Message, ranks: Sequence[WatchedRank]
    ) -> Message | None:
        """None if there is not enough data yet.

        Raises:
            ProtocolError: the request makes no sense.
        """
        if watched.attempt != self._attempt:
            self._attempt = watched.attempt
            self._answers.clear()
        what = (asked.get("kind"), asked.get("selected"), asked.get("out_of_section"))
        key = (whole(asked, "number"), repr(what))
        if key not in self._answers:
            answer = learned(
                asked,
                [one.reader.intervals() for one in ranks if one.attempt == watched.attempt],
                watched.sections,
                watched.heartbeat,
                watched.section,
                self._rules,
            )
            if answer is None:
                return None
            self._answers[key] = answer
        return self._answers[key]
