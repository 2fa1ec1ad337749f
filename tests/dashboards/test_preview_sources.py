"""What a preview is made of: pages as JSON, and annotations as series."""

from __future__ import annotations

from pathlib import Path

from otel_straggler.dashboards.preview.annotations import events
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.pages import Page, read
from otel_straggler.dashboards.preview.prometheus import Prometheus
from otel_straggler.dashboards.preview.queries import Asking
from otel_straggler.dashboards.preview.ranges import TimeRange

from .fake_prometheus import FakePrometheus


def test_annotations_are_events() -> None:
    """Points a step apart are one; or the value is the time; below zero is nothing."""
    told = {"expr": "fires", "step": "60s", "titleFormat": "{{rank}} slow", "name": "Alerts"}
    ended = {"expr": "ends", "useValueForTime": True, "name": "End", "iconColor": "red"}
    wrong = {"expr": "up{", "name": "Wrong"}
    hidden = {"expr": "fires", "enable": False}
    fires = [({"rank": "5"}, [(t, 1.0) for t in (600.0, 660.0, 900.0)] + [(960.0, 0.0)])]
    ends = [({}, [(960.0, 700_000.0), (1_020.0, 700_000.0)])]
    errors = {"up{": "parse error: unexpected end"}
    with FakePrometheus({"fires": fires, "ends": ends}, errors) as fake:
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


def test_the_package_has_six_pages_and_names_choose(tmp_path: Path) -> None:
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
    (tmp_path / "mine.json").write_text('{"uid": "mine", "panels": []}')
    (tmp_path / "wrapped.json").write_text('{"dashboard": {"uid": "w", "panels": []}}')
    assert [p.uid for p in read(tmp_path)] == ["mine", "w"]
