"""A report opened from the disk: the same page, with no network and nobody to ask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.page.bundle import bundle

from ..waiting import eventually
from .live import LivePage, expect

pytestmark = pytest.mark.browser

SLOW = 5


@pytest.fixture(scope="module")
def file(lasting: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that goes on, written by the command."""
    collector = lasting.collector()
    lasting.feed(
        collector, "shared", "pp2,dp4", f"compute:1.5@rank{SLOW}:step60", step_s=0.4
    ).advance(160)
    path = tmp_path_factory.mktemp("report") / "run.html"
    for _ in range(60):
        subprocess.run(
            [sys.executable, "-m", "otel_straggler.cli", "report", "shared",
             "--collector", collector.url, "--html", str(path)],
            check=True,
        )  # fmt: skip
        if f'"headline":"Rank {SLOW}' in path.read_text():
            return path
    pytest.fail("the slow rank was not called slow in time")


@pytest.fixture
def offline(file: Path, open_page: Any) -> Any:
    """The report in a tab whose every request fails; those are remembered."""
    return opened(open_page, file)


def opened(open_page: Any, file: Path, hash_: str = "") -> LivePage:
    watched = open_page()
    watched.page.context.set_offline(True)
    asked: list[str] = []
    watched.page.on("request", lambda request: asked.append(request.url))
    watched.asked = asked
    return LivePage(watched.goto(f"{file.as_uri()}{hash_}")).until_drawn()


def test_it_shows_who_is_slow_the_matrix_and_ranks_over_time(offline: LivePage) -> None:
    """Without a single request beside the file itself, and without an error in the console."""
    offline.says("answer.headline", f"rank {SLOW}")
    offline.says("answer.sentence", "slow GPU")
    offline.says("answer.cause", "slow GPU")
    offline.has("matrix", "data-pattern", "hot_cell")
    offline.has("matrix", "data-hot", "1,1")
    offline.has("rank-time", "data-first-rank", "0")
    offline.has("rank-time", "data-last-rank", "7")
    assert int(offline.attribute("rank-time", "data-columns") or 0) >= 7
    offline.has("connection", "data-state", "saved")
    for section in ("forward", "backward", "gradient_sync"):
        offline.says("ledger", section)
    offline.says("verdicts", f"rank {SLOW}")
    for name in ("matrix", "rank-time", "sections"):
        eventually(lambda part=name: is_painted(offline, part))  # in the next frame, on a busy day
    (only,) = {url.partition("#")[0] for url in offline.watched.asked if url[:5] != "data:"}
    assert only.startswith("file://")
    offline.watched.keep("report-offline")


def is_painted(page: LivePage, name: str) -> bool:
    """Whether more than one colour is on the canvas, or the part has cells."""
    colours = page.page.evaluate(
        """name => {
            const canvas = document.querySelector(
                `[data-part=${name}] canvas, canvas[data-part=${name}]`);
            if (!canvas) return -1;
            const { width, height } = canvas;
            const bytes = canvas.getContext("2d").getImageData(0, 0, width, height).data;
            const seen = new Set();
            for (let at = 0; at < bytes.length; at += 4)
                seen.add(bytes[at] * 65536 + bytes[at + 1] * 256 + bytes[at + 2]);
            return seen.size;
        }""",
        name,
    )
    return bool(colours > 2)


def test_sections_and_ranks_can_be_chosen(file: Path, open_page: Any) -> None:
    """They are in the file: the timeline of a section, and the details of a rank."""
    page = opened(open_page, file, f"#rank={SLOW}")
    expect(page.part("rank")).to_be_visible()
    page.says("rank", f"rank {SLOW}")
    page.says("rank", "forward")
    overall = pixels(page)
    page.part("rank-time").locator("select").first.select_option("forward")
    page.page.wait_for_function("() => location.hash.includes('section=forward')")
    page.page.wait_for_function(f"() => ({PIXELS}) !== {json.dumps(overall)}")


PIXELS = "document.querySelector('[data-part=rank-time] canvas').toDataURL()"


def pixels(page: LivePage) -> Any:
    return page.page.evaluate(PIXELS)


def test_its_policy_forbids_what_is_not_in_it(offline: LivePage) -> None:
    """A script, a request or a picture from elsewhere that somehow got in would do nothing."""
    offline.watched.expects_trouble = True
    offline.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hasRun = true";
            document.body.append(script);
            fetch("data:text/plain,x").then(() => { window.hasRun = true; }, () => {});
        }"""
    )
    offline.page.wait_for_timeout(300)
    assert offline.page.evaluate("window.hasRun") is None
    assert any("Content Security Policy" in error for error in offline.watched.errors)


HOSTILE = (
    "</script><script>window.hasRun=true</script>",
    "<!--<script>",
    "<img src=x onerror=window.hasRun=true>",
    "\u2028\u2029\u202e",
)


def test_hostile_names_are_text(file: Path, tmp_path: Path, open_page: Any) -> None:
    """In every text of the picture, timelines and ranks: shown as they are, and nothing runs."""
    for number, text in enumerate(HOSTILE):
        whole = file.read_text()
        begin = whole.index('id="straggler-data">') + len('id="straggler-data">')
        data = json.loads(whole[begin : whole.index("</script>", begin)])
        target = tmp_path / f"hostile-{number}.html"
        target.write_text(bundle(poisoned(data, text), title=text))
        page = opened(open_page, target)
        page.page.wait_for_timeout(100)
        assert page.page.evaluate("window.hasRun") is None
        assert page.page.evaluate("document.scripts.length") == 2
        if text.isprintable():
            page.says("answer.headline", text)


SHOWN_AS_THEY_ARE = {"headline", "sentence", "node", "nodes", "job", "cause_text", "name", "advice"}


def poisoned(value: Any, text: str, key: str = "") -> Any:
    """Texts that come from outside, with ``text`` in them."""
    if isinstance(value, dict):
        return {name: poisoned(each, text, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, text, key) for each in value]
    if isinstance(value, str) and key in SHOWN_AS_THEY_ARE:
        return f"{value} {text}"
    return value
