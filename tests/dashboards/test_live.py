"""Every query of every page gives data: a real Prometheus, real collectors, simulated runs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.grafana_sizes.asking import Chosen, Grafana, Target, targets
from otel_straggler import semconv
from otel_straggler.dashboards.queries import (
    MAX_LINES,
    OF_SECTIONS,
    RANK,
    RUN,
    SECTION_OF_RANK,
    is_chosen,
    lowest,
    newest,
)

from .conftest import PAGES
from .live_feed import (
    HOT_NODE,
    LOSSY,
    SLOW_RANK,
    STEADY,
    STRANGE_NODE,
    STRANGE_SECTION,
    STUCK,
    STUCK_RANK,
    Feed,
    running_feed,
)

REPORTED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in PAGES}
ALL = [target for page, reported in REPORTED.items() for target in targets(page, reported)]
WITHIN_S = 180.0
Lines = dict[tuple[tuple[str, str], ...], dict[float, float]]
"""By labels, then by time."""
RARE: dict[tuple[str, int | str, str], str] = {
    ("liveness", 4, "A"): STUCK,  # why it waits
    ("liveness", 5, "A"): STUCK,  # for whom it waits
    ("liveness", 6, "A"): STUCK,  # ranks that are late, stuck or lost
    ("matrix", 6, "A"): HOT_NODE,  # flagged nodes
    ("rank", 12, "A"): LOSSY,  # records that it lost
}
"""Queries that give nothing of a run that only has a slow rank, and the run that brings them about.
All others must give data of the steady run."""
EVERYWHERE = ("fleet", "pipeline")
"""Pages about all runs, or about none."""
_RANKS = {STEADY: (SLOW_RANK,), STUCK: (STUCK_RANK,), HOT_NODE: (8,), LOSSY: (0,)}


@dataclass
class Seen:
    """By query: the runs of which it gave data.

    Attributes:
        feed: of the servers.
        runs: "" for pages about all runs.
    """

    feed: Feed
    runs: dict[Target, set[str]] = field(default_factory=lambda: {t: set() for t in ALL})

    def look(self) -> None:
        """Ask all that is still missing."""
        for page, reported in REPORTED.items():
            grafana = self.grafana(page)
            for run_id in [""] if page in EVERYWHERE else [STEADY, STUCK, HOT_NODE, LOSSY]:
                for target in targets(page, reported):
                    wanted = _wanted(target)
                    if run_id == wanted and wanted not in self.runs[target]:
                        self._ask(grafana, target, run_id)

    def grafana(self, page: str, end_s: float | None = None) -> Grafana:
        end_s = time.time() if end_s is None else end_s
        range_s = math.ceil(end_s - self.feed.began_s)
        return Grafana(self.feed.url, REPORTED[page], end_s=end_s, range_s=range_s)

    def ask(self, grafana: Grafana, target: Target, run_id: str) -> bool:
        """Whether it gives data of the run."""
        result, _ = grafana.answer(target, chosen(target.page, run_id))
        return any(_is_number(series) for series in result)

    def _ask(self, grafana: Grafana, target: Target, run_id: str) -> None:
        if self.ask(grafana, target, run_id):
            self.runs[target].add(run_id)

    @property
    def is_all_there(self) -> bool:
        return all(_wanted(target) in runs for target, runs in self.runs.items())


def _wanted(target: Target) -> str:
    rare = RARE.get((target.page, target.panel, target.ref))
    return "" if target.page in EVERYWHERE else rare or STEADY


def chosen(page: str, run_id: str) -> Chosen:
    """What is chosen on a page to look at a run: nothing on pages about all."""
    if not run_id:
        return {}
    reported: dict[str, str | list[str]] = {"run_id": run_id}
    if page == "matrix":
        reported["group"] = ""
    if page == "rank":
        reported["rank"] = str(_RANKS[run_id][0])
    return reported


def _is_number(series: Any) -> bool:
    points = series.get("values") or [series["value"]]
    return any(math.isfinite(float(value)) for _, value in points)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Asked again and again while the runs run, until everything was seen or time is up."""
    folder = tmp_path_factory.mktemp("live")
    with running_feed(folder, "nobody saw the pages' queries answered") as feed:
        result = Seen(feed)
        until_s = time.monotonic() + WITHIN_S
        while not result.is_all_there and time.monotonic() < until_s:
            time.sleep(2.0)
            result.look()
        yield result


@pytest.mark.parametrize("target", ALL, ids=str)
def test_a_query_gives_data(seen: Seen, target: Target) -> None:
    """Of the steady run, or of the one that the table of rare ones names."""
    assert _wanted(target) in seen.runs[target], target.expression


@pytest.mark.parametrize("rare", RARE, ids=str)
def test_what_is_called_rare_is_rare(seen: Seen, rare: tuple[str, int | str, str]) -> None:
    """It is a query that there is, and gives nothing of the steady run: the table is no longer than
    it must be."""
    [target] = [t for t in ALL if (t.page, t.panel, t.ref) == rare]
    assert not seen.ask(seen.grafana(target.page), target, STEADY)


@pytest.mark.parametrize("page", sorted(REPORTED))
def test_several_values_of_every_variable_can_be_chosen(seen: Seen, page: str) -> None:
    """Every variable offers values that fit those before it; with two of each of those that may be
    several, no query is refused, and what comes is of these."""
    grafana = seen.grafana(page)
    reported: dict[str, str | list[str]] = {}
    for name, variable in grafana.variables.items():
        offered = grafana.values(name, reported)
        assert offered or name in ("cluster", "group"), name  # labels that may be absent
        if variable.get("multi"):
            reported |= {name: offered[:2]} if offered else {}
        else:
            reported[name] = STEADY if name == "run_id" else next(iter(offered), "")
    for target in targets(page, REPORTED[page]):
        result, _ = grafana.answer(target, reported)
        for series in result:
            for name in series["metric"].keys() & reported.keys():
                value = reported[name]
                is_one = series["metric"][name] in ([value] if isinstance(value, str) else value)
                assert is_one or f'"${name}"' not in target.expression, target.expression


def test_who_is_slow_and_who_is_stuck_stands_on_the_pages(seen: Seen) -> None:
    """The figures that a person would read, not only any."""
    worst = _newest_culprits(seen, STEADY)[0]
    assert worst["metric"]["rank"] == str(SLOW_RANK)
    waited_for = _rows(seen, "liveness", 5, "A", STUCK)
    assert [row["metric"]["rank"] for row in waited_for] == [str(STUCK_RANK)]
    opened = {
        row["metric"]["section"]: float(row["value"][1])
        for row in _rows(seen, "liveness", 11, "A", STUCK)
    }
    assert opened == {"gradient_sync": 15.0, "forward": 1.0}
    clock, dcgm = (_rows(seen, "rank", 13, ref, STEADY) for ref in "AB")
    assert min(float(s["values"][-1][1]) for s in clock) == pytest.approx(1.98e9 / 1.5)
    [joined] = dcgm
    assert joined["metric"] == {"hw_id": clock[0]["metric"]["hw_id"]}
    assert {value for _, value in joined["values"]} == {"45000000"}


def _newest_culprits(seen: Seen, run_id: str) -> list[Any]:
    """Of the run, worst first."""
    return _newest(seen, ("fleet", 7, "A"), {}, run_id)


def _newest(seen: Seen, place: tuple[str, int, str], reported: Chosen, run_id: str) -> list[Any]:
    """What a panel last had about a run: it may have ended, and have nothing since."""
    [target] = [t for t in ALL if (t.page, t.panel, t.ref) == place]
    now_s = time.time()
    for ago_s in range(int(now_s - seen.feed.began_s)):
        result, _ = seen.grafana(place[0], now_s - ago_s).answer(target, reported)
        if of_run := [row for row in result if row["metric"].get("run_id", run_id) == run_id]:
            return of_run
    raise AssertionError(f"{place} never had anything about {run_id}")


@pytest.mark.parametrize("node", ["", "node-0", "node-4"])
def test_the_worst_over_time_are_those_of_all_ranks(seen: Seen, node: str) -> None:
    """What the collector calls the worst leads to the same rows with the same scores as choosing
    among the series of all ranks, also of a node on which all are well."""
    of_ranks = f"{OF_SECTIONS}, {is_chosen('node')}"
    among_all = lowest(semconv.SECTION_RELATIVE, SECTION_OF_RANK, of_ranks)
    reported = chosen("run", STEADY) | ({"node": [node]} if node else {})
    grafana = _a_while_ago(seen)
    rows = _points(grafana, 8, "A", reported)
    assert rows == _lines(grafana, among_all, reported)
    assert len(rows) == MAX_LINES
    assert {dict(labels)["node"] for labels in rows} == {node} or not node


@pytest.mark.parametrize(
    ("panel", "ref", "metric", "quantile"),
    [
        (12, "A", semconv.SECTION_RELATIVE, 0.05),
        (12, "D", semconv.SECTION_RELATIVE, 0.95),
        (13, "A", semconv.SECTION_MEDIAN, 0.5),
        (13, "B", semconv.SECTION_MEDIAN, 1.0),
    ],
)
def test_quantiles_are_those_of_all_ranks(
    seen: Seen, panel: int, ref: str, metric: semconv.Metric, quantile: float
) -> None:
    """Of one section at every moment, as Prometheus finds it over the series of all ranks."""
    grafana, reported = _a_while_ago(seen), {**chosen("run", STEADY), "section": ["forward"]}
    by = RUN if panel == 12 else f"{RUN}, section"
    among_all = f"quantile by ({by}) ({quantile}, {newest(metric, RANK, OF_SECTIONS)})"
    [result] = _points(grafana, panel, ref, reported).values()
    [expected] = _lines(grafana, among_all, reported).values()
    assert result.keys() == expected.keys()
    assert result == pytest.approx(expected)


def _a_while_ago(seen: Seen) -> Grafana:
    """Up to a moment about which nothing more comes in."""
    end_s = time.time() - 5.0
    range_s = int(end_s - seen.feed.began_s)
    return Grafana(seen.feed.url, REPORTED["run"], end_s=end_s, range_s=range_s)


def _points(grafana: Grafana, panel: int, ref: str, reported: Chosen) -> Lines:
    [target] = [t for t in ALL if (t.page, t.panel, t.ref) == ("run", panel, ref)]
    return _lines(grafana, target.expression, reported)


def _lines(grafana: Grafana, expression: str, reported: Chosen) -> Lines:
    result, _ = grafana.answer(Target("run", "", "", expression, is_instant=False), reported)
    return {
        tuple(sorted(one["metric"].items())): {at: float(value) for at, value in one["values"]}
        for one in result
    }


def test_a_strange_name_finds_what_is_called_so_alone(seen: Seen) -> None:
    """A run with quotes, backslashes, dollars and all that means something in a pattern: where it
    is the one value of a variable, and where it is one of several. Nodes and sections as well."""
    for page, reported in (("liveness", LOSSY), ("fleet", [LOSSY])):
        grafana = seen.grafana(page)
        assert LOSSY in grafana.values("run_id", {})
        result = _newest(seen, (page, 1, "A"), {"run_id": reported}, LOSSY)
        assert [series["value"][1] for series in result] == ["1"], page
    reported = {"run_id": LOSSY, "job_name": [LOSSY], "node": [STRANGE_NODE]}
    assert seen.grafana("rank").values("rank", reported) == ["0"]
    assert set(seen.grafana("run").values("section", reported)) == {STRANGE_SECTION, "another"}
    [worst] = [t for t in ALL if (t.page, t.panel, t.ref) == ("run", 9, "A")]
    several = {**reported, "section": [STRANGE_SECTION, "a third"]}
    [only], _ = seen.grafana("run").answer(worst, several)
    assert only["metric"]["section"] == STRANGE_SECTION


def _rows(seen: Seen, page: str, panel: int, ref: str, run_id: str) -> list[Any]:
    return _newest(seen, (page, panel, ref), chosen(page, run_id), run_id)
