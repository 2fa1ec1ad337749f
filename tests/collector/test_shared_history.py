"""Shards with one history in PostgreSQL: what a page, a restart and the commands find there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from otel_straggler.cli import main
from otel_straggler.collector.history import postgres_history as module
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.settings import HistorySettings, MetricsSettings, ScoringSettings
from otel_straggler.collector.settings_file import load_settings
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.secret import Secret

from ..end_to_end.fleet import FREE, STEPS, Shard, send_run
from ..servers.postgres import Postgres
from ..waiting import eventually

NOW_S = 1_790_000_000.0


@pytest.fixture
def start(database: Postgres) -> Iterator[Callable[[str], Shard]]:
    started: list[Shard] = []

    def start(name: str) -> Shard:
        shard = Shard(
            metrics=MetricsSettings(listen=FREE, collector_id=name),
            history=HistorySettings(path=database.url, save_every_seconds=0.1),
            scoring=ScoringSettings(window_steps=20, idle_s=0.5),
        )
        started.append(shard)
        return shard

    yield start
    for shard in started:
        shard.close()


def test_what_one_shard_scored_is_on_the_pages_of_all_and_for_the_commands(
    start: Callable[[str], Shard], database: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each window once; a shard that starts later shows the run of one that is gone."""
    here = start("a")
    send_run(here.otlp, "run-a")
    here.last_window("run-a")
    here.close()
    with HistoryReader(database.url) as reader:
        (run,) = reader.runs()
        steps = [window.first_step for window in reader.windows("run-a")]
    assert (run.run_id, run.collector) == ("run-a", "a")
    assert steps == [*range(0, STEPS, 20)]
    there = start("b")
    # Shard a may still have it: what it saved is a second old, not a minute.
    assert [each["run_id"] for each in there.get("/v1/runs")["runs"]] == []
    database.ask("UPDATE runs SET last_seen_ns = last_seen_ns - 60 * 1000000000::bigint")
    late = start("c")
    (entry,) = late.get("/v1/runs")["runs"]
    assert (entry["run_id"], entry["is_live"]) == ("run-a", False)
    assert late.get("/v1/run?run=run-a")["answer"]["headline"]
    capsys.readouterr()
    for command in (
        ["history", database.url, "--run", "run-a"],
        ["report", "run-a", "--history", database.url],
        ["replay", database.url, "--would-have-paged"],
    ):
        assert main(command) == 0
        assert "run-a" in capsys.readouterr().out


def test_scoring_goes_on_without_the_database_and_the_page_says_so(
    start: Callable[[str], Shard], database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was scored meanwhile is written once it is back."""
    from otel_straggler.collector.history import pages

    monkeypatch.setattr(module, "RETRY_S", 0.05)
    monkeypatch.setattr(pages, "_AGAIN_S", 0.1)
    shard = start("a")
    database.stop()
    try:
        send_run(shard.otlp, "run")
        shard.last_window("run")
        listed = eventually(
            lambda: (runs := shard.get("/v1/runs")) and runs.get("history_problem") and runs
        )
        assert "PostgreSQL did not answer" in listed["history_problem"]
        assert [run["run_id"] for run in listed["runs"]] == ["run"]
    finally:
        database.start()

    def steps() -> list[int | None]:
        with HistoryReader(database.url) as reader:
            return [window.first_step for window in reader.windows("run")]

    assert eventually(lambda: steps() == [*range(0, STEPS, 20)])
    assert eventually(lambda: shard.get("/v1/runs")["history_problem"] is None)


def test_a_run_of_another_shard_is_not_awaited_by_one_that_restarts(database: Postgres) -> None:
    """It waits for its own runs; that of another is on its page until that one is gone, too."""
    for name in ("a", "b"):
        seen = WorldView(run_id=f"run-{name}", now_s=NOW_S, received_at_s=NOW_S - 1.0)
        history = History(database.url, wall_s=lambda: NOW_S, collector=name)
        history.open()
        history.put(summaries=[summary_of(seen), summary_of(replace(seen, group="critic"))])
        history.close()
    clock = [NOW_S + 10.0]
    page = PageHistory(
        database.url,
        monotonic_s=lambda: clock[0],
        wall_s=lambda: clock[0],
        collector="a",
    )
    assert [run.run_id for run in page.runs()] == ["run-a"]
    assert all(world.awaited for world in page.worlds("run-a"))
    clock[0] += 60.0
    assert [run.run_id for run in page.runs()] == ["run-b", "run-a"]
    assert [world.awaited for world in page.worlds("run-b")] == [None, None]
    assert [entry["run_id"] for entry in page.entries(())] == ["run-b", "run-a"]


def summary_of(seen: WorldView) -> Summary:
    return Summary(
        run_id=seen.run_id, job=seen.job, group=seen.group, make=lambda: summary_value(seen)
    )


def test_a_url_with_a_password_is_a_secret_setting() -> None:
    """A path prints as it is."""
    settings = load_settings(None, {"history.path": "postgresql://me:hunter2@db/straggler"})
    assert isinstance(settings.history.path, Secret)
    assert "hunter2" not in f"{settings} {settings.history.path}"
    assert load_settings(None, {"history.path": "history.db"}).history.path == "history.db"
