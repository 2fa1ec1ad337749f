"""Screenshots of the live page for README.md and docs/, from real runs: ``make screenshots``.

    python docs/screenshots.py [NAME ...]     all, or the named ones, such as bad-gpu or demo

Start the demo's training and a collector with the four runs of stories.py, open them in a headless
Chromium, and write docs/images/*.png with a reduced palette. Takes four minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from stories import COLLECTOR, STORIES, Story, running  # noqa: E402

from otel_straggler.demo.processes import Collector  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = ROOT / "docs" / "images"
LARGEST_BYTES = 200_000
TRAIN = ROOT / "examples" / "demo" / "train.py"
DEMO_FLAGS = (f"--train={TRAIN}", "--fault=slow", "--rank=2", "--section=forward", "--keep")
DEMO_COLUMNS = 14
STORY_STEPS = 400
STORY_COLUMNS = 38
WIDTH, HEIGHT = 1320, 1240
DEMO_HEIGHT = 980
"""Height of the screenshot in README.md."""
PATIENCE_MS = 180_000


def main() -> int:
    names = ["demo", *(story.name for story in STORIES)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"which of {', '.join(names)}; all by default")
    wanted = parser.parse_args().name or names
    if unknown := set(wanted) - set(names):
        parser.error(f"got {', '.join(unknown)}; expected one of {', '.join(names)}")
    IMAGES.mkdir(exist_ok=True)
    from tests.servers.chromium import running_chromium

    with running_chromium() as browser:
        if "demo" in wanted:
            capture_demo(browser)
        if stories := [story for story in STORIES if story.name in wanted]:
            capture_stories(browser, stories)
    return 0


def capture_demo(browser: Browser) -> None:
    """The page of ``make demo`` during training."""
    with demo_running() as url, opened(browser, url) as page:
        wait_for_answer(page, "Rank 2")
        wait_for_columns(page, DEMO_COLUMNS)
        whole = {"x": 0, "y": 0, "width": WIDTH, "height": DEMO_HEIGHT}
        write_image(page.screenshot(clip=whole), "live-page-light")


def capture_stories(browser: Browser, stories: list[Story]) -> None:
    """Answer and charts of each story."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = Path(folder, "collector.yaml")
        settings.write_text(json.dumps(COLLECTOR))
        collector = Collector(f"--config={settings}")
        stack.callback(collector.close)
        for story in stories:
            stack.enter_context(running(story.arguments(STORY_STEPS), collector.endpoint))
        for story in stories:
            with opened(browser, f"{collector.url}/#run={story.name}") as page:
                wait_for_answer(page, story.says)
                page.wait_for_selector(f"[data-part=matrix][data-pattern={story.pattern}]")
                wait_for_columns(page, STORY_COLUMNS)
                write_image(page.screenshot(clip=down_to(page, "rank-time")), f"story-{story.name}")


@contextlib.contextmanager
def demo_running() -> Iterator[str]:
    """Run the demo; yield the address of its page."""
    with subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "otel_straggler.cli", "demo", *DEMO_FLAGS],
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        try:
            reported = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in demo.stdout)
            yield next(result[0] for result in reported if result)
        finally:
            demo.terminate()


@contextlib.contextmanager
def opened(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        page.goto(url)
        page.wait_for_selector("body[data-ready]", state="attached")
        yield page
    finally:
        context.close()


def wait_for_answer(page: Page, text: str) -> None:
    page.locator("[data-part=answer]", has_text=text).wait_for()


def wait_for_columns(page: Page, minimum: int) -> None:
    chart = page.locator("[data-part=rank-time]")
    ends_at = time.monotonic() + PATIENCE_MS / 1e3
    while int(chart.get_attribute("data-columns") or 0) < minimum:
        if time.monotonic() > ends_at:
            msg = f"less than {minimum} windows after {PATIENCE_MS / 1e3:g} s"
            raise TimeoutError(msg)
        page.wait_for_timeout(200)


def down_to(page: Page, part: str) -> Any:
    """The clip from the top of the page to the end of the card with ``part``."""
    card = page.locator(f".card:has([data-part={part}])").bounding_box()
    assert card is not None
    bottom = min(HEIGHT, card["y"] + card["height"] + 12)
    return {"x": 0, "y": 0, "width": WIDTH, "height": bottom}


def write_image(png: bytes, name: str) -> None:
    """Write the image with as many colors as fit ``LARGEST_BYTES``."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    for colors in (256, 128, 64):
        # k-means preserves the colors of small elements and gradients without banding
        few = image.quantize(colors, kmeans=1, dither=Image.Dither.NONE)
        out = io.BytesIO()
        few.save(out, "PNG", optimize=True)
        if out.tell() <= LARGEST_BYTES:
            break
    path = IMAGES / f"{name}.png"
    path.write_bytes(out.getvalue())
    print(f"{path.relative_to(ROOT)}: {out.tell() / 1e3:.0f} kB, {colors} colors")


if __name__ == "__main__":
    sys.exit(main())
