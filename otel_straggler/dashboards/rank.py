"""One rank: what is slow, since when, and whether it or its work is to blame."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.models import dashboard as dm

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.gpu import kernels, sensors
from otel_straggler.dashboards.page import many, one, page, run_variables, section_variable

_OF_SECTIONS = f"{q.OF_RANK}, {q.is_chosen('section')}"
_KERNELS_OF_RANK = f'{q.OF_RANK}, section=""'
_LEGEND = "{{section}} {{node}} {{group}}"


_TEXT: Final = p.texts(
    """
1 Verdicts on the rank. Suspect, confirmed and flapping verdicts, with cause and evidence.
docs/operate/verdicts.md has what to do for each cause. No row: no verdict.
Empty: No verdict on this rank.

2 Last heartbeat [s]. How long ago the rank was last seen. Longer than a few intervals: is its
process alive, and is its host reachable?
Empty: It has ended, or was never seen

3 May take [s]. What the rank may take for what it does before it counts as stuck. Too short or too
long: docs/operate/silent-and-stuck-ranks.md says how it is set.
Empty: Not reported (folded)

4 Step. The newest step that the rank reported; a click leads to the trace of that step, of all
ranks. Compare it with the other ranks on the liveness page.
Empty: Not reported (folded)

5 Score against the best rank [percentunit]. Best rank's median / own median; the 20 lowest
sections. One section falls: look at what it does. All fall together: the GPU or the host is slow.
Empty: No scores: the rank was not scored in this range, or the budget of series has folded them.

6 Score against its own best [percentunit]. Own best median / own median; the 20 lowest sections.
When it fell is when something changed: look at clocks, temperature and XID errors of that time.
Empty: No scores: the rank was not scored in this range, or the budget of series has folded them.

7 Slowdown against its role. Own median / median of the ranks with the same role; the 20 highest
sections. Use this, not the score, where roles have different work.
Empty: No scores: the rank was not scored in this range, or the budget of series has folded them.

8 Median time [s]. Median time of a section in the window; the 20 longest. A section that takes
little can have a bad score and cost nothing.
Empty: No scores: the rank was not scored in this range, or the budget of series has folded them.

9 Kernels of the rank [percentunit]. Scores of kernel times, where GPU timing is on. Low: the GPU
itself is slow, so look at clocks, power and throttling. High while sections are slow: the host is.
Empty: The rank times no kernels (docs/recipes/gpu-timing.md).

10 Waiting [percentunit]. Share of time that peers waited for this rank, and that it waited for
others. The first is high: it is the culprit. The second: it is a victim, look at another rank.
Empty: It is not among the ranks that wait most or are waited for most.

11 State. A row for each state that the rank was in. Late or stuck before lost: it hung; lost at
once: its process or its host died.

12 Records that it lost [cps]. A second, by reason. Scores rest on what is left: above 0 for long,
see the reasons in docs/reference/names-on-the-wire.md. Reasons that begin with gpu_ lose GPU times
only.
Empty: The rank has reported no losses.
"""
)


def render() -> str:
    node = many("node", q.series(semconv.LAST_HEARTBEAT))
    rank = one("rank", q.series(semconv.LAST_HEARTBEAT, q.OF_RUN, q.is_chosen("node")))
    return page(
        "rank",
        "Rank",
        [*run_variables(), section_variable(), node, rank, *_sources()],
        [
            ("What is said about it", [_verdicts(), *_now()]),
            ("Sections", _sections()),
            ("GPU and waiting", [_gpu(), _waits()]),
            ("Kernels by name", kernels()),
            ("Sensors of the GPU", sensors()),
            ("Alive", [_states(), _dropped()]),
        ],
        _links_of_rank(),
    )


def _verdicts() -> p.Panel:
    subject = f"{q.RANK}, scope, section, cause, state, evidence"
    links = p.next_steps("StragglerRankStraggling", rank=True, is_table=True, of_run=True)
    return p.listing(_TEXT[1], q.newest(semconv.VERDICT_INFO, subject, q.OF_RANK), links=links)


def _now() -> list[p.Panel]:
    beat = q.newest(semconv.LAST_HEARTBEAT, q.RANK, q.OF_RANK)
    ended = q.newest(semconv.RANK_STATE, q.RANK, q.OF_RANK, 'state=~"finished|failed|ended"')
    allowed = q.newest(semconv.RANK_TIMEOUT, q.RANK, q.OF_RANK)
    return [
        p.number(
            _TEXT[2], f"(time() - {beat}) unless on ({q.RANK}) {ended}", p.HEARTBEAT_AGES, span=8
        ),
        p.number(_TEXT[3], allowed, span=8),
        p.number(
            _TEXT[4],
            q.newest(semconv.RANK_STEP, q.RANK, q.OF_RANK),
            span=8,
            links=[_link_of_step()],
            is_count=True,
        ),
    ]


def _sections() -> list[p.Panel]:
    where = q.SECTION_OF_RANK, _OF_SECTIONS
    relative = q.lowest(semconv.SECTION_RELATIVE, *where)
    individual = q.lowest(semconv.SECTION_INDIVIDUAL, *where)
    slowdown = q.highest(semconv.SECTION_SLOWDOWN, *where)
    return [
        p.lines(_TEXT[5], [(_LEGEND, relative)], steps=p.SCORES),
        p.lines(_TEXT[6], [(_LEGEND, individual)], steps=p.SCORES),
        p.lines(_TEXT[7], [(_LEGEND, slowdown)], steps=p.SLOWDOWNS),
        p.lines(_TEXT[8], [(_LEGEND, q.highest(semconv.SECTION_MEDIAN, *where))]),
    ]


def _gpu() -> p.Panel:
    best = q.newest(semconv.GPU_RELATIVE, q.RANK, _KERNELS_OF_RANK)
    own = q.newest(semconv.GPU_INDIVIDUAL, q.RANK, _KERNELS_OF_RANK)
    return p.lines(
        _TEXT[9],
        [("against the best {{group}}", best), ("against its own best {{group}}", own)],
        steps=p.SCORES,
    )


def _waits() -> p.Panel:
    caused = q.rate(semconv.CAUSED_WAIT, q.RANK, q.OF_RANK)
    suffered = q.rate(semconv.SUFFERED_WAIT, q.RANK, q.OF_RANK)
    return p.lines(
        _TEXT[10], [("others for it {{group}}", caused), ("it for others {{group}}", suffered)]
    )


def _states() -> p.Panel:
    return p.timeline(
        _TEXT[11],
        "{{state}} {{node}} {{group}}",
        q.newest(semconv.RANK_STATE, f"{q.RUN}, node, state", q.OF_RANK),
        steps=((None, "blue"),),
        texts=("no", "yes"),
        colours=p.STATES,
        links=p.next_steps("StragglerRankLost", of_run=True),
    )


def _dropped() -> p.Panel:
    return p.lines(
        _TEXT[12],
        [("{{reason}} {{node}}", q.rate(semconv.RECORDS_DROPPED, f"{q.RANK}, reason", q.OF_RANK))],
        steps=p.RATE_IS_ODD,
        span=24,
    )


# --- links to traces and logs, in Grafana's Explore ----------------------------------------------

_OF_RUN: Final = f'resource.{semconv.RUN_ID} = "${{run_id:percentencode}}"'
_OF_RANK: Final = f"{_OF_RUN} && resource.{semconv.RANK} = ${{rank:percentencode}}"
_OF_LOGS: Final = " | ".join(
    f'{str(key).replace(".", "_")}="${{{name}:percentencode}}"'
    for key, name in ((semconv.RUN_ID, "run_id"), (semconv.RANK, "rank"))
)


def _sources() -> list[d.DatasourceVariable]:
    """Variables for the data sources that the links lead to."""
    sources = {"traces": "tempo", "logs": "loki"}
    return [d.DatasourceVariable(name).label(name).type(kind) for name, kind in sources.items()]


def _links_of_rank() -> list[d.DashboardLink]:
    """Links in the range of the dashboard."""
    urls = {
        "Traces of this rank": _traces(f"{{ {_OF_RANK} }}"),
        "Logs of this rank": _explore("logs", "loki", expr=f'{{service_name=~".+"}} | {_OF_LOGS}'),
    }
    return [
        d.DashboardLink(title)
        .type(dm.DashboardLinkType.LINK)
        .url(url)
        .icon("external link")
        .target_blank(True)
        for title, url in urls.items()
    ]


def _link_of_step() -> d.DashboardLink:
    """From a step to its trace, which has the spans of all ranks."""
    url = _traces(f"{{ {_OF_RUN} && span.{semconv.STEP} = ${{__value.numeric}} }}")
    return d.DashboardLink("Trace of step ${__value.text}").url(url)


def _traces(query: str) -> str:
    return _explore("traces", "tempo", queryType="traceql", query=query)


def _explore(variable: str, kind: str, **query: str) -> str:
    """Explore with a query. Grafana fills in the variables."""
    uid = f"${{{variable}}}"
    pane = {
        "datasource": uid,
        "queries": [{"refId": "A", "datasource": {"type": kind, "uid": uid}, **query}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    panes = json.dumps({"one": pane}, separators=(",", ":"), sort_keys=True)
    return f"/explore?schemaVersion=1&panes={quote(panes, safe='${}:,[]')}"
