"""Whether the live page's charts stay fluid at 10,000 ranks: what a frame costs while panning.

    python -m benchmarks.page_fluidity [--seconds N]

Headless Chromium, without a GPU, shows the three charts of a made-up run of 10,000 ranks, 360
windows and 30 sections. A hand then drags the canvas of ranks over time to and fro, zoomed in so
that a line of pixels still stands for several ranks; after that the one of ranks by section. While
it does so one more window comes in each second, as from a collector. Frames are taken from
Chromium's own trace: ``main`` is all that the page's main thread did from one animation frame to
the next (script, style, layout, paint, commit, garbage collection), ``raster`` what its raster
threads did meanwhile; ``script_and_paint`` is the sum of both. The budget is held against processor
time (``cpu_ms``), which neighbours on the same machine do not change; ``wall_ms`` is given with it.
The time between frames is the machine's: nothing is drawn faster than the display asks for it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from bisect import bisect_left
from itertools import pairwise
from typing import Any

from playwright.sync_api import CDPSession, Page

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from tests.page.charts_fixtures import Story
from tests.page.charts_server import served
from tests.servers.chromium import running_chromium

RANKS, WINDOWS, SECTIONS = 10_000, 360, 30
MORE_WINDOWS = 20
BUDGET_MS = 33.0
CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline,toplevel,__metadata"
Json = dict[str, Any]
Event = dict[str, Any]
Span = tuple[float, float, float]
"""When it began, how long it took, and how much processor time: microseconds."""


def main() -> None:
    """Measure both charts and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6.0)
    seconds = parser.parse_args().seconds
    with served() as address, running_chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        later = _show(page)
        charts = {
            "rank_time": _measured(page, "#rank-time", seconds, later),
            "sections": _measured(page, "#sections", seconds, later),
        }
        version = browser.version
    figures = {"ranks": RANKS, "windows": WINDOWS, "sections": SECTIONS, "seconds": seconds}
    budgets = {
        f"{name}_p95": judge(chart["script_and_paint"]["cpu_ms"]["p95"], BUDGET_MS, "ms")
        for name, chart in charts.items()
    }
    result = {**about("playwright"), "chromium": version, **figures, "charts": charts}
    print_result(result, budgets)


def _show(page: Page) -> list[Json]:
    """Puts the run on the page; the answer is the windows that come later, one by one."""
    story = Story("hot_cell", RANKS, WINDOWS + MORE_WINDOWS, sections=SECTIONS)
    first = story.timeline(end=WINDOWS)
    page.evaluate("([p, t]) => charts.show(p, t)", [story.run_view(), first])
    return [story.timeline(first=i, end=i + 1) for i in range(WINDOWS, WINDOWS + MORE_WINDOWS)]


def _measured(page: Page, chart: str, seconds: float, later: list[Json]) -> Json:
    """Zooms in to where ranks still share lines, then pans under the trace."""
    canvas = page.locator(f"{chart} canvas").first
    canvas.scroll_into_view_if_needed()
    for _ in range(3):
        page.get_by_role("button", name="ranks: zoom in").nth(
            0 if chart == "#rank-time" else 1
        ).click()
    if chart == "#rank-time":
        page.get_by_role("button", name="time: zoom in").click()
    session = page.context.new_cdp_session(page)
    events = _traced(session, lambda: _pan(page, canvas.bounding_box(), seconds, later))
    return {"in_sight": page.locator(f"{chart} .chart-note").inner_text(), **_summary(events)}


def _traced(session: CDPSession, act: Any) -> list[Event]:
    events: list[Event] = []
    ended: list[bool] = []
    session.on("Tracing.dataCollected", lambda chunk: events.extend(chunk["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    session.send("Tracing.start", {"categories": CATEGORIES, "transferMode": "ReportEvents"})
    act()
    session.send("Tracing.end")
    deadline_s = time.monotonic() + 60
    while not ended and time.monotonic() < deadline_s:
        session.send("Runtime.evaluate", {"expression": "0"})  # lets events come in
    return events


def _pan(page: Page, box: Any, seconds: float, later: list[Json]) -> None:
    """Drags in a slow figure of eight without letting go; a move waits for the frame before it."""
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    began_s = time.monotonic()
    reported = 0
    while (now_s := time.monotonic() - began_s) < seconds:
        across = math.sin(now_s * 2.1) * box["width"] * 0.3
        down = math.sin(now_s * 1.3) * box["height"] * 0.45
        page.mouse.move(middle[0] + across, middle[1] + down)
        if now_s > reported + 1 and later:
            reported += 1
            page.evaluate("t => charts.add(t)", later.pop(0))
    page.mouse.up()


def _summary(events: list[Event]) -> Json:
    """Costs per frame, of the thread that runs animation frames and of the raster threads."""
    frames = sorted(
        (e["ts"], e["pid"], e["tid"]) for e in events if e["name"] == "FireAnimationFrame"
    )
    if len(frames) < 10:
        print("too few animation frames in the trace: was the page hidden?", file=sys.stderr)
        sys.exit(1)
    process, thread = frames[0][1], frames[0][2]
    tasks = _spans(events, "RunTask", lambda e: (e["pid"], e["tid"]) == (process, thread))
    raster = _spans(events, "RasterTask", lambda e: e["pid"] == process)
    starts = [_task_of(at, tasks) for at, *_ in frames]
    between = list(pairwise(starts))
    apart_ms = [(after - before) / 1e3 for before, after in between]
    return {
        "frames": len(between),
        "script_and_paint": _costs([*tasks, *raster], between),
        "main": _costs(tasks, between),
        "raster": _costs(raster, between),
        "between_frames_ms": _spread(apart_ms),
    }


def _spans(events: list[Event], name: str, is_wanted: Any) -> list[Span]:
    """In order of time."""
    return sorted(
        (e["ts"], e["dur"], e.get("tdur", 0))
        for e in events
        if e["name"] == name and e.get("ph") == "X" and is_wanted(e)
    )


def _costs(spans: list[Span], between: list[tuple[float, float]]) -> Json:
    """Of the spans that begin between two frames, those together."""
    ordered = sorted(spans)
    starts = [start for start, _, _ in ordered]
    parts = [ordered[bisect_left(starts, a) : bisect_left(starts, b)] for a, b in between]
    return {
        "wall_ms": _spread([sum(wall for _, wall, _ in part) / 1e3 for part in parts]),
        "cpu_ms": _spread([sum(cpu for _, _, cpu in part) / 1e3 for part in parts]),
    }


def _task_of(at: float, tasks: list[Span]) -> float:
    """When the task began in which something happened."""
    return max((start for start, wall, _ in tasks if start <= at <= start + wall), default=at)


def _spread(values_ms: list[float]) -> Json:
    ordered = sorted(values_ms)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    figures = {"p50": statistics.median(ordered), "p95": p95, "max": ordered[-1]}
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    main()
