"""One rank: what of it is slow, since when, and whether it or its work is to blame."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.models import dashboard as dm

from otel_straggler import semconv
from otel_straggler.dashboards.gpu import kernels, sensors
from otel_straggler.dashboards.page import many, one, page, run_variables, section_variable
from otel_straggler.dashboards.panels import (
    HEARTBEAT_AGES,
    OF_ONE_RUN,
    PLAIN,
    RATE_IS_ODD,
    SCORES,
    SLOWDOWNS,
    STATES,
    Panel,
    lines,
    number,
    rows,
    timeline,
)
from otel_straggler.dashboards.queries import (
    OF_RANK,
    OF_RUN,
    RANK,
    RUN,
    SECTION_OF_RANK,
    highest,
    is_chosen,
    lowest,
    newest,
    rate,
    series,
)

_OF_SECTIONS = f"{OF_RANK}, {is_chosen('section')}"
_KERNELS_OF_RANK = f'{OF_RANK}, section=""'
_LEGEND = "{{section}} {{node}} {{group}}"
_FOLDED = "Not reported (folded)"
_NO_SCORES = (
    "No scores: the rank was not scored in this range, or the budget of series has folded them."
)


def render() -> str:
    node = many("node", series(semconv.LAST_HEARTBEAT))
    rank = one("rank", series(semconv.LAST_HEARTBEAT, OF_RUN, is_chosen("node")))
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


def _verdicts() -> Panel:
    subject = f"{RANK}, scope, section, cause, state, evidence"
    return rows(
        1,
        "Verdicts on the rank",
        "Suspect, confirmed and flapping verdicts, with cause and evidence. "
        "docs/operate/verdicts.md has what to do for each cause. No row: no verdict.",
        [("is reported", "short", newest(semconv.VERDICT_INFO, subject, OF_RANK), PLAIN)],
        dropped=["is reported", *OF_ONE_RUN],
        empty="No verdict on this rank.",
    )


def _now() -> list[Panel]:
    beat = newest(semconv.LAST_HEARTBEAT, RANK, OF_RANK)
    ended = newest(semconv.RANK_STATE, RANK, OF_RANK, 'state="finished"')
    allowed = newest(semconv.RANK_TIMEOUT, RANK, OF_RANK)
    return [
        number(
            2,
            "Last heartbeat",
            "How long ago the rank was last seen. Longer than a few intervals: is its process "
            "alive, and is its host reachable?",
            "s",
            f"(time() - {beat}) unless on ({RANK}) {ended}",
            HEARTBEAT_AGES,
            span=8,
            empty="It has ended, or was never seen",
        ),
        number(
            3,
            "May take",
            "What the rank may take for what it does before it counts as stuck. Too short or too "
            "long: docs/operate/silent-and-stuck-ranks.md says how it is set.",
            "s",
            allowed,
            PLAIN,
            span=8,
            empty=_FOLDED,
        ),
        number(
            4,
            "Step",
            "The newest step that the rank reported; a click leads to the trace of that step, of "
            "all ranks. Compare it with the other ranks on the liveness page.",
            "short",
            newest(semconv.RANK_STEP, RANK, OF_RANK),
            PLAIN,
            span=8,
            links=[_link_of_step()],
            is_count=True,
            empty=_FOLDED,
        ),
    ]


def _sections() -> list[Panel]:
    return [
        lines(
            5,
            "Score against the best rank",
            "Best rank's median / own median; the 20 lowest sections. One section falls: look at "
            "what it does. All fall together: the GPU or the host is slow.",
            "percentunit",
            [(_LEGEND, lowest(semconv.SECTION_RELATIVE, SECTION_OF_RANK, _OF_SECTIONS))],
            steps=SCORES,
            empty=_NO_SCORES,
        ),
        lines(
            6,
            "Score against its own best",
            "Own best median / own median; the 20 lowest sections. When it fell is when something "
            "changed: look at clocks, temperature and XID errors of that time.",
            "percentunit",
            [(_LEGEND, lowest(semconv.SECTION_INDIVIDUAL, SECTION_OF_RANK, _OF_SECTIONS))],
            steps=SCORES,
            empty=_NO_SCORES,
        ),
        lines(
            7,
            "Slowdown against its role",
            "Own median / median of the ranks with the same role; the 20 highest sections. Use "
            "this, not the score, where roles have different work.",
            "short",
            [(_LEGEND, highest(semconv.SECTION_SLOWDOWN, SECTION_OF_RANK, _OF_SECTIONS))],
            steps=SLOWDOWNS,
            empty=_NO_SCORES,
        ),
        lines(
            8,
            "Median time",
            "Median time of a section in the window; the 20 longest. A section that takes little "
            "can have a bad score and cost nothing.",
            "s",
            [(_LEGEND, highest(semconv.SECTION_MEDIAN, SECTION_OF_RANK, _OF_SECTIONS))],
            empty=_NO_SCORES,
        ),
    ]


def _gpu() -> Panel:
    best = newest(semconv.GPU_RELATIVE, RANK, _KERNELS_OF_RANK)
    own = newest(semconv.GPU_INDIVIDUAL, RANK, _KERNELS_OF_RANK)
    return lines(
        9,
        "Kernels of the rank",
        "Scores of kernel times, where GPU timing is on. Low: the GPU itself is slow, so look at "
        "clocks, power and throttling. High while sections are slow: the host is.",
        "percentunit",
        [("against the best {{group}}", best), ("against its own best {{group}}", own)],
        steps=SCORES,
        empty="The rank times no kernels (docs/recipes/gpu-timing.md).",
    )


def _waits() -> Panel:
    caused = rate(semconv.CAUSED_WAIT, RANK, OF_RANK)
    suffered = rate(semconv.SUFFERED_WAIT, RANK, OF_RANK)
    return lines(
        10,
        "Waiting",
        "Share of time that peers waited for this rank, and that it waited for others. The first "
        "is high: it is the culprit. The second: it is a victim, look at another rank.",
        "percentunit",
        [("others for it {{group}}", caused), ("it for others {{group}}", suffered)],
        empty="It is not among the ranks that wait most or are waited for most.",
    )


def _states() -> Panel:
    return timeline(
        11,
        "State",
        "A row for each state that the rank was in. Late or stuck before lost: it hung; lost at "
        "once: its process or its host died.",
        "short",
        "{{state}} {{node}} {{group}}",
        newest(semconv.RANK_STATE, f"{RUN}, node, state", OF_RANK),
        steps=((None, "blue"),),
        texts=("no", "yes"),
        colours=STATES,
    )


def _dropped() -> Panel:
    return lines(
        12,
        "Records that it lost",
        "A second, by reason. Scores rest on what is left: above 0 for long, see the reasons in "
        "docs/reference/names-on-the-wire.md. Reasons that begin with gpu_ lose GPU times only.",
        "cps",
        [("{{reason}} {{node}}", rate(semconv.RECORDS_DROPPED, f"{RANK}, reason", OF_RANK))],
        steps=RATE_IS_ODD,
        span=24,
        empty="The rank has reported no losses.",
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
    """Of the rank that the page is about, in the range of the page."""
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
    """From a value that is a step to its trace, which has the spans of all ranks."""
    url = _traces(f"{{ {_OF_RUN} && span.{semconv.STEP} = ${{__value.numeric}} }}")
    return d.DashboardLink("Trace of step ${__value.text}").url(url)


def _traces(query: str) -> str:
    return _explore("traces", "tempo", queryType="traceql", query=query)


def _explore(variable: str, kind: str, **query: str) -> str:
    """Explore with a query. Variables stay as they are, for Grafana to fill in."""
    uid = f"${{{variable}}}"
    pane = {
        "datasource": uid,
        "queries": [{"refId": "A", "datasource": {"type": kind, "uid": uid}, **query}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    panes = json.dumps({"one": pane}, separators=(",", ":"), sort_keys=True)
    return f"/explore?schemaVersion=1&panes={quote(panes, safe='${}:,[]')}"
