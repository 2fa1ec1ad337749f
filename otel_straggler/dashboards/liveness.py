"""Who is silent, who is stuck, and for whom a hung run waits."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import BigValueTextMode

from otel_straggler import semconv
from otel_straggler.dashboards.page import page, run_variables
from otel_straggler.dashboards.panels import (
    HEARTBEAT_AGES,
    NONE_IS_GOOD,
    OF_ONE_RUN,
    PLAIN,
    RUN_STATES,
    STATES,
    Panel,
    bars,
    lines,
    link,
    number,
    rows,
)
from otel_straggler.dashboards.queries import MAX_LINES, RANK, RUN, is_chosen, newest, series

_ENDED = newest(semconv.RANK_STATE, RANK, more='state="finished"')
_NO_JOB = is_chosen("cluster", "run_id")
_TO_RANK = link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank")
_ROW_TO_RANK = link("Rank ${__data.fields.rank}", "rank", "rank", is_table=True, of_run=True)


def render() -> str:
    return page(
        "liveness",
        "Liveness",
        run_variables(),
        [
            ("Does it make progress", [*_now(), _why()]),
            ("Who", [_culprits(), _not_well()]),
            ("How long", [_silent(), _behind(), _open_sections()]),
            ("Over time", [_states(), _ages()]),
        ],
    )


def _age(metric: semconv.Metric) -> str:
    return f"(time() - {newest(metric, RANK)}) unless on ({RANK}) {_ENDED}"


def _now() -> list[Panel]:
    state = newest(semconv.RUN_STATE, f"{RUN}, state")
    return [
        number(
            1,
            "State of the run",
            "The state that the run is in. Stuck, partly lost or lost: read the "
            "sentence below, then ask `otel-straggler hang`.",
            "short",
            f"count by (state) ({state} == 1)",
            PLAIN,
            span=8,
            shows=BigValueTextMode.NAME,
            colours=RUN_STATES,
            empty="No collector knows it",
        ),
        number(
            2,
            "Hung",
            "Yes while the run makes no progress and nobody has acknowledged it. Act: every "
            "minute costs the time of all its ranks.",
            "short",
            newest(semconv.RUN_HUNG, RUN),
            NONE_IS_GOOD,
            span=8,
            texts=("no", "yes"),
            empty="No collector knows it",
        ),
        number(
            3,
            "Ranks claimed twice",
            "Ranks that two live processes claim. Above 0: an old job still runs, or two share a "
            "run id. Stop one of them.",
            "short",
            f"max by (cluster, run_id) ({series(semconv.RUN_IDENTITY_CLASHES, _NO_JOB)})",
            NONE_IS_GOOD,
            span=8,
            is_count=True,
        ),
    ]


def _why() -> Panel:
    info = newest(semconv.RUN_HANG_INFO, f"{RUN}, why, sentence")
    return rows(
        4,
        "Why it waits",
        "Why the run hangs, from who joined which collective. No row: no hang. The runbook "
        "(`otel-straggler alerts runbook StragglerRunHung`) has the next step.",
        [("is reported", "short", info, PLAIN)],
        dropped=["is reported", *OF_ONE_RUN],
        empty="No hang.",
    )


def _culprits() -> Panel:
    return rows(
        5,
        "For whom it waits",
        "Ranks that the hang waits for, 20 at most, and why. Look at these processes first; all "
        "others are victims.",
        [("is reported", "short", newest(semconv.RANK_CULPRIT, f"{RANK}, why"), PLAIN)],
        links=[_ROW_TO_RANK],
        span=12,
        dropped=["is reported", *OF_ONE_RUN],
        empty="It waits for no rank.",
    )


def _not_well() -> Panel:
    states = newest(semconv.RANK_STATE, f"{RANK}, state", more='state=~"late|stuck|lost"')
    return rows(
        6,
        "Ranks that are late, stuck or lost",
        "50 at most. All on one host: look at the host. In a hang nearly all are stuck; the "
        "table next to it shows the culprits.",
        [("is so", "short", f"topk(50, {states})", PLAIN)],
        links=[_ROW_TO_RANK],
        span=12,
        dropped=["is so", *OF_ONE_RUN],
        states=STATES,
        empty="No rank is late, stuck or lost.",
    )


def _silent() -> Panel:
    return bars(
        7,
        "Longest without a heartbeat",
        "The 20 ranks with the oldest heartbeat, without those that have finished. A few far "
        "ahead: their processes or hosts are gone. All alike: the network or the collector.",
        "s",
        "rank {{rank}} {{node}} {{group}}",
        f"topk({MAX_LINES}, {_age(semconv.LAST_HEARTBEAT)})",
        links=[_TO_RANK],
        steps=HEARTBEAT_AGES,
        empty="All ranks have ended, or none was seen",
    )


def _behind() -> Panel:
    front = newest(semconv.RUN_STEP, RUN)
    each = newest(semconv.RANK_STEP, RANK)
    return bars(
        8,
        "Most steps behind",
        "The 20 ranks whose newest step is furthest behind the front of the run. One step is "
        "normal; more means that it reports late, or that it did not join. Of thousands of ranks "
        "those in trouble and the first ones are looked at.",
        "short",
        "rank {{rank}} {{node}} {{group}}",
        f"topk({MAX_LINES}, {front} - on ({RUN}) group_right () {each})",
        links=[_TO_RANK],
        empty="No rank has reported a step",
    )


def _open_sections() -> Panel:
    return bars(
        11,
        "Open sections",
        "In which section the ranks are that have not ended. In a hang most wait in a collective: "
        "the few that are elsewhere did not join it, look at these.",
        "short",
        "{{section}} {{group}}",
        newest(semconv.RUN_OPEN_SECTIONS, f"{RUN}, section"),
        span=24,
        empty="No rank is in a section: all have ended, or report none",
    )


def _states() -> Panel:
    return lines(
        9,
        "Ranks by state",
        "How many ranks are in each state. Late, then stuck, all at once: a collective hangs. "
        "Lost ranks: processes or hosts are gone.",
        "short",
        [("{{state}} {{group}}", newest(semconv.RUN_RANKS, f"{RUN}, state"))],
        stacked=True,
        colours=STATES,
    )


def _ages() -> Panel:
    return lines(
        10,
        "Oldest heartbeat and oldest progress",
        "Of all ranks that have not finished. Progress grows while heartbeats stay: processes "
        "are alive and training hangs. Both grow: ranks are gone, or unreachable.",
        "s",
        [
            ("oldest heartbeat {{group}}", f"time() - {newest(semconv.RUN_OLDEST_HEARTBEAT, RUN)}"),
            ("oldest progress {{group}}", f"time() - {newest(semconv.RUN_OLDEST_PROGRESS, RUN)}"),
        ],
    )
