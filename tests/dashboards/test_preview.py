"""`dashboards preview` draws any page into one file and says what it could not draw."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.dashboards.preview.annotations import events
from otel_straggler.dashboards.preview.build import preview_page
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.document import NOT_GRAFANA
from otel_straggler.dashboards.preview.pages import Page, read
from otel_straggler.dashboards.preview.prometheus import Prometheus
from otel_straggler.dashboards.preview.queries import Asking
from otel_straggler.dashboards.preview.ranges import TimeRange

from .fake_prometheus import FakePrometheus

pytest.importorskip("plotly", reason="would show that pages are drawn")
HOSTILE = "<img src=x onerror=\"document.body.dataset.hacked='1'\"></script>%{x}"
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    """With series of a hostile rank, and an expression that it does not like."""
    now_s = time.time()
    points = [(now_s - 30.0, 1.0), (now_s - 15.0, 2.0)]
    one = [({"rank": HOSTILE, "job": "j"}, points)]
    with FakePrometheus(
        {"up": one, "vector(1)": [({}, points)]}, {"up{": "parse error: unexpected end"}
    ) as server:
        yield server


def panel(at: int, kind: str, expr: str, **more: Any) -> dict[str, Any]:
    is_table = kind == "table"
    target = {"refId": "A", "expr": expr, "datasource": PROMETHEUS, "instant": kind == "stat"}
    if is_table:
        target |= {"format": "table", "instant": True}
    place = {"x": 12 * (at % 2), "y": 8 * (at // 2) + 1, "w": 12, "h": 8}
    shown = {"legend": {"showLegend": True}, "textMode": "value_and_name"}
    made = {"id": at, "type": kind, "title": f"{kind} of {expr}", "targets": [target]}
    return made | {"gridPos": place, "options": shown, "description": "Look."} | more


@pytest.fixture
def write_page(tmp_path: Path) -> Callable[..., Path]:
    """Writes a page into a folder; the folder."""

    def write(*panels: dict[str, Any], name: str = "mine", **more: Any) -> Path:
        page = {"uid": name, "title": f"Page {name}", "panels": list(panels)} | more
        (tmp_path / f"{name}.json").write_text(json.dumps(page), encoding="utf-8")
        return tmp_path

    return write


def run(*arguments: object) -> int:
    return main(["dashboards", "preview", *map(str, arguments)])


def test_a_page_is_drawn_and_told_of(
    fake: FakePrometheus, write_page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Per panel how many series and points; where it is; that it is not Grafana."""
    folder = write_page(panel(0, "timeseries", "up"), panel(1, "table", "up"))
    out = folder / "out.html"
    assert run("--prometheus", fake.url, "--dir", folder, "-o", out, "--check") == 0
    first, second, counts, size = capsys.readouterr().out.splitlines()
    assert re.sub(" +", " ", first) == "drawn 1 series 2 points mine / timeseries of up"
    assert re.sub(" +", " ", second) == "drawn 1 series 4 points mine / table of up"
    assert counts == "2 of 2 panels drew data"
    assert size.startswith(f"{out}: ")
    html = out.read_text(encoding="utf-8")
    assert NOT_GRAFANA in html
    assert "<img" not in html.split("<main>")[1].split("</main>")[0]


def test_what_is_not_drawn_is_told(
    fake: FakePrometheus, write_page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A failing query with the server's words, an empty panel with its query, unknown kinds."""
    folder = write_page(
        panel(0, "timeseries", "up{"),
        panel(1, "stat", "nothing"),
        panel(2, "piechart", "up"),
        panel(3, "table", "up", transformations=[{"id": "joinByLabels", "options": {}}]),
        panel(4, "stat", "up", datasource={"type": "loki"}, repeat="rank"),
    )
    json_file = folder / "mine.json"
    told = json.loads(json_file.read_text(encoding="utf-8"))
    told["panels"][4]["targets"][0]["datasource"] = {"type": "loki"}
    json_file.write_text(json.dumps(told), encoding="utf-8")
    out = folder / "out.html"
    assert run("--prometheus", fake.url, "--dir", folder, "-o", out) == 0
    said = capsys.readouterr().out
    assert "failed" in said
    assert "A: parse error: unexpected end" in said
    assert "Panels of kind piechart are not drawn here." in said
    assert "Transformation joinByLabels is not known here and was not done." in said
    assert "asks a data source of type loki" in said
    assert "Repeated for each value of rank in Grafana" in said
    html = out.read_text(encoding="utf-8")
    states = re.findall(r'data-panel="(\d)"[^>]*data-state="(\w+)"', html)
    assert states == [
        ("0", "failed"),
        ("1", "empty"),
        ("2", "unknown"),
        ("3", "drawn"),
        ("4", "failed"),
    ]
    assert "<strong>No data</strong><code>A (now): nothing</code>" in html
    assert run("--prometheus", fake.url, "--dir", folder, "-o", out, "--check") == 1


def test_a_panel_with_a_part_that_failed_is_drawn_and_says_so(
    fake: FakePrometheus, write_page: Callable[..., Path]
) -> None:
    """What came is shown, with the words about what did not; for --check it has failed."""
    made = panel(0, "timeseries", "up")
    made["targets"].append(made["targets"][0] | {"refId": "B", "expr": "up{"})
    html, (box,) = preview_page(fake.url, "mine", folder=write_page(made))
    assert (box.state, box.n_points) == ("failed", 2)
    assert '<p class="error">B: parse error: unexpected end</p><div class="chart">' in html


def test_annotations_are_events(fake: FakePrometheus) -> None:
    """Points a step apart are one; or the value is the time; below zero is nothing."""
    told = {"expr": "fires", "step": "60s", "titleFormat": "{{rank}} slow", "name": "Alerts"}
    ended = {"expr": "ends", "useValueForTime": True, "name": "End", "iconColor": "red"}
    wrong = {"expr": "up{", "name": "Wrong"}
    hidden = {"expr": "fires", "enable": False}
    fires = [({"rank": "5"}, [(t, 1.0) for t in (600.0, 660.0, 900.0)] + [(960.0, 0.0)])]
    fake.series |= {"fires": fires, "ends": [({}, [(960.0, 700_000.0), (1_020.0, 700_000.0)])]}
    asking = Asking(Prometheus(fake.url), TimeRange(600.0, 1_200.0, ("", "")), {}, 15.0)
    found, problems = events([told, ended, wrong, hidden], asking, Palette("dark"))
    assert [(one.begin_s, one.end_s, one.text) for one in found] == [
        (600.0, 660.0, "Alerts: 5 slow"),
        (700.0, 700.0, "End: "),
        (900.0, 900.0, "Alerts: 5 slow"),
    ]
    assert problems == ["annotation Wrong: parse error: unexpected end"]


def test_closed_rows_are_opened_and_move_what_is_below() -> None:
    """As if the reader had clicked on them; rows are as wide as the page."""
    inner = {"id": 2, "type": "stat", "gridPos": {"x": 0, "y": 1, "w": 24, "h": 8}}
    page = Page(
        "mine",
        {
            "panels": [
                {"id": 3, "type": "stat", "gridPos": {"x": 0, "y": 1, "w": 6, "h": 4}},
                {"id": 1, "type": "row", "collapsed": True, "panels": [inner], "gridPos": {"y": 0}},
            ]
        },
    )
    places = [(p["id"], p["gridPos"]["y"], p["gridPos"]["w"]) for p in page.panels()]
    assert places == [(1, 0, 24), (2, 1, 24), (3, 9, 6)]


def test_the_package_has_six_pages_and_names_choose(write_page: Callable[..., Path]) -> None:
    """By file or uid; those of a folder in place of them; as the API of Grafana wraps them too."""
    assert [p.name for p in read(None)] == [
        "fleet",
        "liveness",
        "matrix",
        "pipeline",
        "rank",
        "run",
    ]
    assert [p.name for p in read(None, ["otel-straggler-run", "fleet"])] == ["run", "fleet"]
    folder = write_page()
    (folder / "wrapped.json").write_text('{"dashboard": {"uid": "w", "panels": []}}')
    assert [p.uid for p in read(folder)] == ["mine", "w"]


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "is not JSON"), ("[]", "classic JSON"), ('{"spec": {}}', "export as classic")],
)
def test_what_is_no_page_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    """With the file."""
    (tmp_path / "odd.json").write_text(content)
    assert run("--prometheus", "http://127.0.0.1:9", "--dir", tmp_path) == 2
    said = capsys.readouterr().err
    assert "odd.json" in said
    assert words in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--page", "nobody"], "one of fleet, liveness, matrix, pipeline, rank, run"),
        (["--var", "run_id"], "'run_id' is not NAME=VALUE"),
        (["--scrape-interval", "often"], "a number with a unit"),
        ([], "the address of a Prometheus that answers"),
    ],
)
def test_wrong_arguments_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """In one line, with the exit code of a user's mistake."""
    assert run("--prometheus", "http://127.0.0.1:9", *arguments) == 2
    assert words in capsys.readouterr().err


def test_a_range_that_is_wrong_is_named(
    fake: FakePrometheus, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of the arguments, before anything is written."""
    out = tmp_path / "out.html"
    assert run("--prometheus", fake.url, "--from", "now", "--to", "now-1h", "-o", out) == 2
    assert "a beginning before the end" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_without_pages_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not drawn as nothing."""
    assert run("--prometheus", "http://127.0.0.1:9", "--dir", tmp_path) == 2
    assert "a folder with pages as *.json" in capsys.readouterr().err


def test_without_the_chart_library_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anybody is asked."""
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert run("--prometheus", "http://127.0.0.1:9") == 2
    assert "pip install 'otel-straggler[preview]'" in capsys.readouterr().err


def test_another_server_is_not_taken_for_a_prometheus(
    fake: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it said is told, and no password of the address."""
    fake.errors["vector(1)"] = "who are you?"
    url = fake.url.replace("//", "//me:secret@")
    assert run("--prometheus", url) == 2
    said = capsys.readouterr().err
    assert "who are you?" in said
    assert "secret" not in said


@pytest.mark.browser
def test_names_from_the_network_are_text_in_a_browser(
    fake: FakePrometheus, write_page: Callable[..., Path], open_page: Any
) -> None:
    """In legends, charts, tables, figures, states: shown as they are, never run."""
    kinds = ("timeseries", "table", "stat", "bargauge", "state-timeline", "heatmap")
    panels = [
        panel(at, kind, "up") | {"title": f"{kind} of ${{run_id}}"} for at, kind in enumerate(kinds)
    ]
    panels[0]["targets"][0]["legendFormat"] = "rank {{rank}}"
    run_id = {"name": "run_id", "type": "textbox", "query": HOSTILE}
    folder = write_page(*panels, templating={"list": [run_id]})
    html, boxes = preview_page(fake.url, "mine", folder=folder)
    assert {box.state for box in boxes} == {"drawn"}
    (folder / "out.html").write_text(html, encoding="utf-8")
    page = open_page((folder / "out.html").as_uri()).page
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.body.dataset.hacked") is None
    assert page.locator("img").count() == 0
    assert page.inner_text(".legend span") == f"rank {HOSTILE}"
    assert page.inner_text("#panel-mine-0 h3") == f"timeseries of {HOSTILE}"
    assert HOSTILE in page.inner_text("#panel-mine-1 tbody")
    assert page.evaluate(
        "document.querySelector('#panel-mine-0 .chart').data[0].hovertemplate"
    ).startswith("rank &lt;img")
