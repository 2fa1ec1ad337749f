"""What the rules remember of a collector that may be gone: one series for each run.

A series of a scrape ends with its scrape, and one of an earlier instance keeps its last value for
as long as anybody looks back. These are made of the scrape's labels' absence: a run at a collector
has one, whatever address that had, and another says when the word was last heard, so that the word
of an older collector never beats that of a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.promql import ANYWHERE, OF_RUN, duration, newest, series
from otel_straggler.alerts.promql import by as by_labels


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded series: its name, its labels beside cluster and collector, and its expression."""

    name: str
    labels: tuple[str, ...]
    expression: str


_ENDS = "finished|cancelled|preempted|failed|forgotten"
HUNG: Final = Recorded("run:straggler_run_hung:max", OF_RUN, newest(OF_RUN, semconv.RUN_HUNG))
HEARD: Final = Recorded(
    "run:straggler_run_heard:timestamp_seconds",
    OF_RUN,
    f"max {by_labels(OF_RUN)} (timestamp({series(semconv.RUN_HUNG)}))",
)
HUNG_AT: Final = Recorded(
    "run:straggler_run_hung:timestamp_seconds",
    OF_RUN,
    f"max {by_labels(OF_RUN)} "
    f"(timestamp({series(semconv.RUN_HUNG)}) and {series(semconv.RUN_HUNG)} == 1)",
)
ENDED: Final = Recorded(
    "run:straggler_run_ended:max", OF_RUN, newest(OF_RUN, semconv.RUN_STATE, f'state=~"{_ENDS}"')
)
HEARTBEAT: Final = Recorded(
    "run:straggler_last_heartbeat:timestamp_seconds",
    OF_RUN,
    newest(OF_RUN, semconv.LAST_HEARTBEAT),
)
SCORED: Final = Recorded(
    "run:straggler_last_scored:timestamp_seconds",
    OF_RUN,
    newest(OF_RUN, semconv.RANK_LAST_SCORED),
)
RECORDED: Final = (HUNG, HEARD, HUNG_AT, ENDED, HEARTBEAT, SCORED)


def hung_when_last_heard(within_s: float) -> str:
    """Runs of which the newest word, of whatever collector, is that they hang."""
    window = duration(within_s)
    labels = ", ".join(("cluster", "collector", *OF_RUN))
    return (
        f"(last_over_time({HUNG.name}[{window}]) == 1)\n"
        f"and on ({labels}) (\n"
        f"  max_over_time({HEARD.name}[{window}])\n"
        f"  >= on ({ANYWHERE}) group_left ()\n"
        f"  max by ({ANYWHERE}) (max_over_time({HEARD.name}[{window}]))\n"
        ")"
    )
