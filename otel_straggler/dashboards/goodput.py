"""What a run got for its time: useful steps, and losses by name."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.dashboards.marks import GOODPUTS
from otel_straggler.dashboards.panels import Panel, bars, lines, number
from otel_straggler.dashboards.queries import RUN, growth, newest, total_pace


def what_for() -> list[Panel]:
    """Panels of one run."""
    return [
        number(
            16,
            "Goodput",
            "Useful time / time since the run began. Below 0.9: the longest bar beside says what "
            "to work on first.",
            "percentunit",
            newest(semconv.RUN_GOODPUT, RUN),
            GOODPUTS,
            span=8,
            empty="The run tells none",
        ),
        bars(
            17,
            "Time that was not useful",
            "By reason, in the range. checkpoint: write fewer, or in the background; redone: write "
            "more; restart and start_up: images and data near the hosts; stragglers: see above.",
            "s",
            "{{reason}} {{group}}",
            f"{growth(semconv.RUN_LOST, f'{RUN}, reason')} > 0",
            span=16,
            empty="Nothing was lost, or the run tells no goodput",
        ),
    ]


def over_runs() -> Panel:
    """Of all runs together."""
    return lines(
        8,
        "Time that is not useful, by reason",
        "Runs' worth of time that all chosen runs together lose now, by reason; 1 is one run that "
        "does nothing useful. Work on the thickest band that all runs share first.",
        "short",
        [("{{reason}}", total_pace(semconv.RUN_LOST, "cluster, reason"))],
        stacked=True,
        span=24,
        empty="No run tells its goodput",
    )
