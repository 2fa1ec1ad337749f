"""Links to traces and logs of what a page shows, in Grafana's Explore."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.models import dashboard as dm

from otel_straggler import semconv

TRACES, LOGS = "traces", "logs"
_SOURCES: Final = {TRACES: "tempo", LOGS: "loki"}
_OF_RUN: Final = f'resource.{semconv.RUN_ID} = "${{run_id:percentencode}}"'
_OF_RANK: Final = f"{_OF_RUN} && resource.{semconv.RANK} = ${{rank:percentencode}}"
_LOG_LABELS: Final = {
    str(key).replace(".", "_"): name
    for key, name in ((semconv.RUN_ID, "run_id"), (semconv.RANK, "rank"))
}


def sources() -> list[d.DatasourceVariable]:
    """Variables for the data sources that the links lead to."""
    return [d.DatasourceVariable(name).label(name).type(kind) for name, kind in _SOURCES.items()]


def links_of_rank() -> list[d.DashboardLink]:
    """Of the rank that the page is about, in the range of the page."""
    told = " | ".join(f'{label}="${{{name}:percentencode}}"' for label, name in _LOG_LABELS.items())
    return [
        _on_page("Traces of this rank", _url(TRACES, f"{{ {_OF_RANK} }}")),
        _on_page("Logs of this rank", _url(LOGS, f'{{service_name=~".+"}} | {told}')),
    ]


def link_of_step() -> d.DashboardLink:
    """From a value that is a step to its trace, which has the spans of all ranks."""
    asked = f"{{ {_OF_RUN} && span.{semconv.STEP} = ${{__value.numeric}} }}"
    return d.DashboardLink("Trace of step ${__value.text}").url(_url(TRACES, asked))


def _on_page(title: str, url: str) -> d.DashboardLink:
    made = d.DashboardLink(title).type(dm.DashboardLinkType.LINK).url(url)
    return made.icon("external link").target_blank(True)


def _url(variable: str, asked: str) -> str:
    """Explore with a query. Variables stay as they are, for Grafana to fill in."""
    kind = _SOURCES[variable]
    uid = f"${{{variable}}}"
    query = {"refId": "A", "datasource": {"type": kind, "uid": uid}}
    query |= {"queryType": "traceql", "query": asked} if kind == "tempo" else {"expr": asked}
    pane = {
        "datasource": uid,
        "queries": [query],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    panes = json.dumps({"one": pane}, separators=(",", ":"), sort_keys=True)
    return f"/explore?schemaVersion=1&panes={quote(panes, safe='${}:,[]')}"
