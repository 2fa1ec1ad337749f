"""Where pages lead: to each other, a collector's live page and runbook, traces and logs."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import NAMES

from .conftest import FOLDER, PAGES, Json, panels

UIDS = {f"otel-straggler-{path.stem}" for path in PAGES}


def test_links_lead_to_pages_that_there_are(page: Json) -> None:
    """With the range of time, and to variables of the page they lead to."""
    urls = re.findall(r'"url": "([^"]*)"', json.dumps(page))
    explored = [url for url in urls if url.startswith("/explore?")]
    assert len(explored) == (3 if page["uid"].endswith("-rank") else 0)
    for url in explored:
        _is_an_exploration(url, {variable["name"] for variable in page["templating"]["list"]})
    away = [url for url in urls if url.startswith("${page_url:raw}/")]
    for url in away:
        _is_of_a_collector(url.removeprefix("${page_url:raw}"))
    for url in set(urls) - set(explored) - set(away):
        uid, asked = re.fullmatch(r"/d/([\w-]+)\?(.*)", url).groups()  # type: ignore[union-attr]
        assert uid in UIDS
        assert "${__url_time_range}" in asked
        text = (FOLDER / f"{uid.removeprefix('otel-straggler-')}.json").read_text(encoding="utf-8")
        known = {variable["name"] for variable in json.loads(text)["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", asked)) <= known
    assert page["links"][0]["keepTime"]
    assert page["links"][0]["tags"] == page["tags"] == ["otel-straggler"]
    assert page["editable"] is False


def _is_of_a_collector(path: str) -> None:
    """A run, perhaps a rank, on its live page; or a chapter of its runbook."""
    if path.startswith("/#"):
        asked = parse_qs(path.removeprefix("/#"))
        assert asked.keys() <= {"run", "rank"}
        assert re.fullmatch(r"\$\{(__\w+\.\w+\.)?run_id:percentencode\}", asked["run"][0])
    else:
        bare, _, alert = path.partition("?alert=")
        assert bare == semconv.RUNBOOK_PATH
        assert alert in {*NAMES, "", "${__data.fields.alertname:percentencode}"}


def test_every_row_leads_to_the_live_page_and_to_the_runbook(page: Json) -> None:
    """Of tables, bars and timelines: who reads one is about to act."""
    for panel in panels(page):
        if panel["type"] in ("table", "bargauge", "state-timeline"):
            links = {
                link["title"]: link["url"] for link in panel["fieldConfig"]["defaults"]["links"]
            }
            assert {"Live page", "Runbook"} <= links.keys(), panel["title"]
            assert links["Live page"].startswith("${page_url:raw}/#run="), panel["title"]
            has_rank = re.search(r"rank=\$\{__(?:data|field)", " ".join(links.values()))
            assert not has_rank or "&rank=${__" in links["Live page"], panel["title"]


def _is_an_exploration(url: str, variables: set[str]) -> None:
    """Of a source that the page has, with its range, of the run; once variables are filled in."""
    used = set(re.findall(r"\$\{(\w+)(?::\w+)?\}", url)) - {"__from", "__to"}
    assert used <= variables
    assert not {"run_id", "rank"} & set(re.findall(r"\$\{(\w+)\}", url))  # "+" would be a space
    filled_in = re.sub(r"\$\{([\w.]+)(?::\w+)?\}", "7", url)
    asked = parse_qs(filled_in.partition("?")[2])
    [panes] = asked["panes"]
    pane = json.loads(panes)["one"]
    [query] = pane["queries"]
    assert pane["range"] == {"from": "7", "to": "7"}
    text = query.get("query") or query["expr"]
    run, rank = str(semconv.RUN_ID), str(semconv.RANK)
    if query["datasource"]["type"] == "tempo":
        assert f'resource.{run} = "7"' in text
        assert f"resource.{rank} = 7" in text or f"span.{semconv.STEP} = 7" in text
    else:
        assert f'{run.replace(".", "_")}="7" | {rank.replace(".", "_")}="7"' in text
