"""Names come from the network: whatever they contain is shown as text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import ask, eventually
from .feeding import renamed
from .live import LivePage, expect
from .test_using import choose_run

pytestmark = pytest.mark.browser

ATTACK = '<img src=x onerror="window.hacked=1">'
RUNS = (
    f"{ATTACK}run",
    "\"'><script>window.hacked=1</script>",
    "a&b#c=d%20e?f/../g",
    "javascript:window.hacked=1",
    "\u202edesrever\u202c \u0646\u0635 \u5b9f\u884c \U0001f686",
)
PLANTED = """() => [window.hacked ?? null, document.querySelectorAll(
    "img, iframe, object, embed, base, form[action], script:not([src]), svg script, [onerror],"
    + " [onload], [onclick], a[href^='javascript:' i], [style*=url]"
).length]"""


@pytest.fixture(scope="module")
def collector(lasting: Any) -> Any:
    """Runs, nodes, sections, roles and jobs are all called something bad; one rank is slow."""
    started = lasting.collector()
    for run_id in RUNS:
        fault = "compute:1.6@rank5:step20"
        feed = lasting.feed(started, run_id, "dp8", fault, change=renamed(ATTACK))
        feed.advance(160)
    tones = lambda: [run["tone"] for run in ask(started, "/v1/runs")["runs"]]  # noqa: E731
    eventually(lambda: tones() == ["bad"] * len(RUNS))
    return started


def test_names_are_text(collector: Any, look: Any) -> None:
    """In the answer, the ledger and the details of a rank: shown as they are, run nowhere."""
    page = look(collector)
    page.says("answer.headline", ATTACK)
    page.says("ledger", f"{ATTACK}forward")
    page.page.goto(f"{collector.url}/#rank=5")
    page.says("rank", f"{ATTACK}node")
    page.page.wait_for_timeout(300)  # for an image that fails to load, if there were one
    assert page.page.evaluate(PLANTED) == [None, 0]


@pytest.mark.parametrize("run_id", RUNS)
def test_any_name_of_a_run_can_be_chosen_and_shared(collector: Any, look: Any, run_id: str) -> None:
    """By the picker, and by the address that this gives."""
    shown = "desrever" if "desrever" in run_id else run_id  # what turns text is marked, not shown
    page = look(collector)
    choose_run(page, shown)
    has_run(page, shown)
    shared = page.page.url
    other = look(collector)
    other.page.goto(shared)
    other.reload()
    has_run(other, shown)
    assert other.page.evaluate(PLANTED) == [None, 0]


def test_hostile_addresses_run_nothing(collector: Any, look: Any) -> None:
    """What somebody else has put behind the # is data too."""
    page = look(collector)
    page.watched.expects_trouble = True  # 404 for what is not there
    for field in ("run", "group", "section", "rank", "theme", "x"):
        page.page.goto(f"{collector.url}/#{field}={ATTACK}")
        page.reload()
        assert page.page.evaluate(PLANTED) == [None, 0], field


def has_run(page: LivePage, run_id: str) -> None:
    expect(page.part("picker")).to_contain_text(re.compile(re.escape(run_id)))
