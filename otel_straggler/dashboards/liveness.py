"""Silent ranks, stuck ranks, and which rank a hung run waits for."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.common import BigValueTextMode

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.page import page, run_variables

_ENDED = q.newest(semconv.RANK_STATE, q.RANK, more='state=~"finished|failed|ended"')
_NO_JOB = q.is_chosen("cluster", "run_id")
_TO_RANK = p.link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank")
_ROW_TO_RANK = p.link("Rank ${__data.fields.rank}", "rank", "rank", is_table=True, of_run=True)
_OF_ROW = {"rank": True, "is_table": True, "of_run": True}


_TEXT: Final = p.texts(
    """
1 State of the run. The state that the run is in. Stuck, partly lost or lost: read the sentence
below, then ask `otel-straggler hang`.
Empty: No collector knows it

2 Hung. Yes while the run makes no progress and nobody has acknowledged it. Act: every minute costs
the time of all its ranks.
Empty: No collector knows it

3 Ranks claimed twice. Ranks that two live processes claim. Above 0: an old job still runs, or two
share a run id. Stop one of them.

4 Why it waits. Why the run hangs, from who joined which collective. No row: no hang. The runbook
(`otel-straggler alerts runbook StragglerRunHung`) has the next step.
Empty: No hang.

5 For whom it waits. Ranks that the hang waits for, 20 at most, and why. Look at these processes
first; all others are victims.
Empty: It waits for no rank.

6 Ranks that are late, stuck or lost. 50 at most. All on one host: look at the host. In a hang
nearly all are stuck; the table next to it shows the culprits.
Empty: No rank is late, stuck or lost.

7 Longest without a heartbeat [s]. The 20 ranks with the oldest heartbeat, without those that have
finished. A few far ahead: their processes or hosts are gone. All alike: the network or the
collector.
Empty: All ranks have ended, or none was seen

8 Most steps behind. The 20 ranks whose newest step is furthest behind the front of the run. One
step is normal; more means that it reports late, or that it did not join. Of thousands of ranks
those in trouble and the first ones are looked at.
Empty: No rank has reported a step

9 Ranks by state. How many ranks are in each state. Late, then stuck, all at once: a collective
hangs. Lost ranks: processes or hosts are gone.

10 Oldest heartbeat and oldest progress [s]. Of all ranks that have not finished. Progress grows
while heartbeats stay: processes are alive and training hangs. Both grow: ranks are gone, or
unreachable.

11 Open sections. In which section the ranks are that have not ended. In a hang most wait in a
collective: the few that are elsewhere did not join it, look at these.
Empty: No rank is in a section: all have ended, or report none
"""
)


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


def _now() -> list[p.Panel]:
    state = q.newest(semconv.RUN_STATE, f"{q.RUN}, state")
    return [
        p.number(
            _TEXT[1],
            f"count by (state) ({state} == 1)",
            span=8,
            shows=BigValueTextMode.NAME,
            colours=p.RUN_STATES,
        ),
        p.number(
            _TEXT[2], q.newest(semconv.RUN_HUNG, q.RUN), p.NONE_IS_GOOD, span=8, texts=("no", "yes")
        ),
        p.number(
            _TEXT[3],
            f"max by (cluster, run_id) ({q.series(semconv.RUN_IDENTITY_CLASHES, _NO_JOB)})",
            p.NONE_IS_GOOD,
            span=8,
            is_count=True,
        ),
    ]


def _why() -> p.Panel:
    info = q.newest(semconv.RUN_HANG_INFO, f"{q.RUN}, why, sentence")
    return p.listing(
        _TEXT[4], info, links=p.next_steps("StragglerRunHung", is_table=True, of_run=True)
    )


def _culprits() -> p.Panel:
    culprits = q.newest(semconv.RANK_CULPRIT, f"{q.RANK}, why")
    links = [_ROW_TO_RANK, *p.next_steps("StragglerRunHung", **_OF_ROW)]
    return p.listing(_TEXT[5], culprits, links=links, span=12)


def _not_well() -> p.Panel:
    states = q.newest(semconv.RANK_STATE, f"{q.RANK}, state", more='state=~"late|stuck|lost"')
    some = f"topk(50, {states})"
    links = [_ROW_TO_RANK, *p.next_steps("StragglerRankStuck", **_OF_ROW)]
    return p.listing(_TEXT[6], some, links=links, span=12, states=p.STATES)


def _silent() -> p.Panel:
    age = f"(time() - {q.newest(semconv.LAST_HEARTBEAT, q.RANK)}) unless on ({q.RANK}) {_ENDED}"
    return p.bars(
        _TEXT[7],
        "rank {{rank}} {{node}} {{group}}",
        f"topk({q.MAX_LINES}, {age})",
        links=[_TO_RANK, *p.next_steps("StragglerRankLost", rank=True)],
        steps=p.HEARTBEAT_AGES,
    )


def _behind() -> p.Panel:
    front = q.newest(semconv.RUN_STEP, q.RUN)
    each = q.newest(semconv.RANK_STEP, q.RANK)
    return p.bars(
        _TEXT[8],
        "rank {{rank}} {{node}} {{group}}",
        f"topk({q.MAX_LINES}, {front} - on ({q.RUN}) group_right () {each})",
        links=[_TO_RANK, *p.next_steps("StragglerRankStuck", rank=True)],
    )


def _open_sections() -> p.Panel:
    return p.bars(
        _TEXT[11],
        "{{section}} {{group}}",
        q.newest(semconv.RUN_OPEN_SECTIONS, f"{q.RUN}, section"),
        links=p.next_steps("StragglerRunHung"),
        span=24,
    )


def _states() -> p.Panel:
    return p.lines(
        _TEXT[9],
        [("{{state}} {{group}}", q.newest(semconv.RUN_RANKS, f"{q.RUN}, state"))],
        stacked=True,
        colours=p.STATES,
    )


def _ages() -> p.Panel:
    heartbeat = q.newest(semconv.RUN_OLDEST_HEARTBEAT, q.RUN)
    progress = q.newest(semconv.RUN_OLDEST_PROGRESS, q.RUN)
    ages = (("heartbeat", heartbeat), ("progress", progress))
    queries = [(f"oldest {of} {{{{group}}}}", f"time() - {at_s}") for of, at_s in ages]
    return p.lines(_TEXT[10], queries)
