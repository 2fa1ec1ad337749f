"""Goodput of a run that goes on: in bounded memory, with the account of the whole run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.goodput.account import account
from otel_straggler.goodput.activities import ATTEMPT, STEP, Activities, Activity
from otel_straggler.goodput.live import BIN_NS, GoodputView, LiveGoodput, Progress
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source

S = 10**9
AT = 1_700_000_100 * S
"""A bin begins with it."""
STEPS = 20


class Run:
    """Feeds the live account, and keeps all that it fed for an account of the whole."""

    def __init__(self) -> None:
        self.live = LiveGoodput()
        self.rows: list[Activity] = []
        self.now_ns = AT
        self.attempt = 0

    def window(self, first: int, length_s: float = 20.0) -> None:
        end_ns = self.now_ns + round(length_s * S)
        row = Activity(STEP, self.now_ns, end_ns, 0, self.attempt, first, STEPS)
        self.rows.append(row)
        self.live._add(row)
        self.now_ns = end_ns

    def phase(self, name: str, length_s: float, rank: int = 0) -> None:
        end_ns = self.now_ns + round(length_s * S)
        row = Activity(name, self.now_ns, end_ns, 0, self.attempt)
        self.rows.append(row)
        self.live.observe_activity(Source(run_id="r", rank=rank, attempt=self.attempt), row)
        self.now_ns = end_ns

    def restart(self, pause_s: float) -> None:
        self.now_ns += round(pause_s * S)
        self.attempt += 1

    def view(self, **more: Any) -> GoodputView:
        view = self.live.evaluate("", **more)
        assert view is not None
        assert sum(view.time_ns.values()) == view.end_ns - view.start_ns
        return view

    def whole(self) -> dict[str, int]:
        attempts = sorted({row.attempt for row in self.rows})
        lives = [
            Activity(
                ATTEMPT,
                min(row.start_ns for row in self.rows if row.attempt == attempt),
                max(row.end_ns for row in self.rows if row.attempt == attempt),
                0,
                attempt,
            )
            for attempt in attempts
        ]
        result = account(Activities.of([*lives, *self.rows]))
        assert result is not None
        pairs = zip(result.categories, result.run_ns.tolist(), strict=True)
        return {name: ns for name, ns in pairs if ns}


def known(view: GoodputView) -> dict[str, int]:
    return {name: ns for name, ns in view.time_ns.items() if ns}


def long_run(run: Run, n_windows: int, first: int = 0) -> None:
    for number in range(n_windows):
        run.window(first + number * STEPS)
        if number % 10 == 9:
            run.phase("checkpoint", 5.0)
        if number % 50 == 49:
            run.phase("log upload", 3.0)
            run.view()


def test_a_long_run_has_the_account_of_all_its_activities() -> None:
    run = Run()
    run.phase("initialization", 12.0)
    run.now_ns += 7 * S
    long_run(run, 2_000)
    assert known(run.view()) == run.whole()
    assert len(run.live._rows) < 900
    assert run.live.nbytes < 500_000


def test_steps_that_are_done_again_are_taken_back_from_the_past() -> None:
    """The restart goes back behind what is no longer kept one by one: half of the run."""
    run = Run()
    long_run(run, 1_000)
    assert run.view().time_ns["productive"] == 1_000 * 20 * S
    run.restart(60.0)
    long_run(run, 50, first=500 * STEPS)
    view, whole = run.view(), run.whole()
    assert view.time_ns["redone"] == pytest.approx(whole["redone"], abs=BIN_NS)
    exact = whole.keys() - {"productive", "redone"}
    assert {name: view.time_ns[name] for name in exact} == {name: whole[name] for name in exact}
    assert view.attempts == 2
    again = run.view()
    assert known(again) == known(view)


def test_goodput_of_the_last_hour_and_of_the_last_day() -> None:
    run = Run()
    long_run(run, 300)  # 6,150 s and some
    assert [length_s for length_s, _ in run.view().rolling] == [3_600.0]
    for _ in range(13):
        run.phase("eval", 400.0)
        run.view()
    [(_, of_hour)] = run.view().rolling
    assert of_hour == 0.0
    long_run(run, 4_500)
    rolling = dict(run.view().rolling)
    assert rolling[3_600.0] == pytest.approx(20.0 / 20.5, abs=0.01)
    assert rolling[86_400.0] == pytest.approx(20.0 / 20.5, abs=0.07)


def test_a_run_without_progress_loses_the_time_until_now() -> None:
    run = Run()
    run.window(0)
    hung = run.view(progress=Progress(now_ns=run.now_ns + 100 * S))
    assert hung.time_ns["hang"] == 100 * S
    assert "hang" not in known(run.view())  # it went on


def test_steps_of_a_window_that_is_still_open_count() -> None:
    run = Run()
    run.window(0)
    view = run.view(progress=Progress(step=30, at_ns=run.now_ns + 11 * S))
    assert view.time_ns["productive"] == 31 * S
    ended = run.view(progress=Progress(ended_ns=run.now_ns + 4 * S))
    assert known(ended) == {"productive": 20 * S, "shutdown": 4 * S}


def test_phases_are_those_of_the_lowest_rank() -> None:
    run = Run()
    run.phase("preparation", 10.0, rank=3)
    run.phase("eval", 10.0, rank=1)
    run.phase("checkpoint", 10.0, rank=2)
    assert known(run.view()) == {"preparation": 10 * S, "eval": 10 * S}


def test_a_ninth_category_of_the_users_own_is_one_of_the_others() -> None:
    run = Run()
    for number in range(11):
        run.phase(f"p{number}", 1.0)
    view = run.view()
    assert view.time_ns["custom:<other>"] == 3 * S
    assert len(known(view)) == 9


def test_an_account_goes_on_after_a_restart_of_the_collector() -> None:
    run = Run()
    long_run(run, 700)
    before = run.view()
    run.live = LiveGoodput.restored(json.loads(json.dumps(run.live.state())))
    assert known(run.view()) == known(before)
    long_run(run, 20, first=700 * STEPS)
    assert known(run.view()) == run.whole()
    with pytest.raises(ValueError, match="version"):
        LiveGoodput.restored({"version": 0})


def test_nothing_is_known_before_the_first_activity() -> None:
    assert LiveGoodput().evaluate("", progress=Progress(step=3, at_ns=AT)) is None


def test_what_comes_too_late_changes_nothing() -> None:
    run = Run()
    long_run(run, 1_000)
    before = run.view()
    late = Activity("eval", AT, AT + 10 * S)
    run.live.observe_activity(Source(run_id="r", rank=0), late)
    assert known(run.view()) == known(before)


def test_windows_give_steps_and_the_mean_wait_for_data() -> None:
    """Of two ranks: one waits 0.2 s a step, the other 0.4 s."""
    builder = BatchBuilder()
    for rank, wait_s in ((0, 0.2), (1, 0.4)):
        for step in range(STEPS):
            source = Source(run_id="r", rank=rank, world_size=2)
            parts = (("load", "data", 0.0, wait_s), ("forward", "compute", wait_s, 1.0 - wait_s))
            for name, kind, after_s, length_s in parts:
                start_ns = AT + round((step + after_s) * S)
                section = Section(name, kind)  # type: ignore[arg-type]
                builder.add(source, section, start_ns=start_ns, duration_s=length_s, step=step)
    scorer = Scorer(ScoreSettings())
    scorer.observe(builder.build(), 1)
    live = LiveGoodput()
    for window in scorer.close_all():
        live.observe_window(window)
    view = live.evaluate("")
    assert view is not None
    assert known(view) == {"data": 6 * S, "productive": 14 * S}
    assert view.goodput == pytest.approx(0.7)


def test_an_attempt_that_the_launcher_ended_has_its_restart(crash) -> None:
    run = Run()
    for event in crash:
        run.live.observe_launch(event)
        run.live.observe_launch(event)
    run.now_ns = AT + 10 * S
    run.window(0)
    run.attempt = 1
    run.now_ns = AT + 60 * S
    run.window(STEPS)
    view = run.view()
    assert known(view) == {
        "start_up": 10 * S,
        "productive": 40 * S,
        "hang": 10 * S,
        "restart": 5 * S,
        "reinitialization": 15 * S,
    }
    assert len(view.launches) == 3


@pytest.fixture
def crash() -> list[LaunchEvent]:
    at_s = AT / S
    node: dict[str, Any] = {"node": "a", "run_id": "r", "ranks": (0,)}
    return [
        LaunchEvent(name="straggler.attempt.started", at_unix_s=at_s, **node),
        LaunchEvent(name="straggler.attempt.ended", at_unix_s=at_s + 40, reason="SIGKILL", **node),
        LaunchEvent(name="straggler.attempt.started", at_unix_s=at_s + 45, attempt=1, **node),
    ]
