"""Real trainings, a real Prometheus, a real Alertmanager: who is called, for whom, how often.

How long it takes is measured by ``python -m benchmarks.alert_delay``; here it only has to arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from . import stories
from .stories import Outcome, Story

pytestmark = [pytest.mark.real_server, pytest.mark.demo]

MAX_S = 45.0
"""A page within this time has arrived, however busy the machine is."""


def story(*each_push: Story, by_night: tuple[Story, ...] = ()) -> Callable[[Any], Any]:
    """What the test is about. Stories that only end, begin or hang in another way than one that
    is told with each push are left to the night: a story is four processes that train."""
    stories = [
        *(pytest.param(each, id=each.__name__) for each in each_push),
        *(pytest.param(each, id=each.__name__, marks=pytest.mark.nightly) for each in by_night),
    ]
    return pytest.mark.parametrize("outcome", stories, indirect=True)


@story(stories.slow_rank)
def test_a_slow_rank_is_named(outcome: Outcome) -> None:
    """One page, about rank 3 and its section, and none about a hang."""
    assert outcome.alerts == ["StragglerRankStraggling"]
    assert len(outcome.firing) == 1
    assert outcome.firing[0].ranks() == [3]
    assert "forward" in outcome.text
    assert outcome.delay_s < MAX_S


@story(stories.slow_then_finished, by_night=(stories.slow_then_failed, stories.slow_then_killed))
def test_a_slow_rank_is_over_with_its_run(outcome: Outcome) -> None:
    """However it ends: what fired resolves, and nothing about slowness begins or goes on. A run
    that was killed is lost, and is paged as that."""
    assert "StragglerRankStraggling" in outcome.alerts
    hang = {"StragglerRunHung", "StragglerRankLost"}
    assert outcome.more["late"] - hang == set()
    assert outcome.more["firing"] - hang == set()


@story(stories.stopped_rank)
def test_a_stopped_rank_is_named_and_that_it_goes_on_is_told(outcome: Outcome) -> None:
    """SIGSTOP: rank 1 is lost, then the run is hung because of it; SIGCONT resolves both."""
    assert "rank 1" in outcome.text
    assert set(outcome.alerts) <= {"StragglerRankLost", "StragglerRunHung"}
    assert len(outcome.firing) <= 2  # the rank, and once the others are stuck the run
    assert {rank for page in outcome.firing for rank in page.ranks()} <= {1}
    assert len(outcome.resolved) == 1
    assert outcome.delay_s < MAX_S


@story(stories.deadlocked_ranks)
def test_a_rank_that_does_not_join_a_collective_is_named(outcome: Outcome) -> None:
    """All are alive; the run is hung, and the sentence says for whom the others wait."""
    assert outcome.alerts == ["StragglerRunHung"]
    assert len(outcome.firing) == 1
    assert "rank 2" in outcome.text
    assert outcome.liveness["culprits"] == [2]
    assert outcome.resolved == []
    assert outcome.delay_s < MAX_S


@story(by_night=(stories.killed_rank,))
def test_a_killed_rank_is_named(outcome: Outcome) -> None:
    """SIGKILL says nothing: rank 2 is lost, and its peers wait for it."""
    assert set(outcome.alerts) <= {"StragglerRankLost", "StragglerRunHung"}
    assert "rank 2" in outcome.text
    assert {rank for page in outcome.firing for rank in page.ranks()} <= {2}
    assert len(outcome.firing) <= 2
    assert outcome.resolved == []
    assert outcome.delay_s < MAX_S


@story(stories.half_lost)
def test_half_the_ranks_lost_is_one_page(outcome: Outcome) -> None:
    """The run is hung; the alerts about its ranks fire too and are held back."""
    assert [page.names() for page in outcome.firing] == [["StragglerRunHung"]]
    assert outcome.more["held_back"] == [2, 3]
    assert "ranks 2 and 3" in outcome.text
    assert outcome.resolved == []


@story(stories.refused_notifications)
def test_a_webhook_that_fails_three_times_gets_its_page(outcome: Outcome) -> None:
    """It is sent again until it is taken, and then once."""
    assert outcome.more["refused"] == 3
    assert [page.names() for page in outcome.firing] == [["StragglerRunHung"]]


@story(stories.clean_finish)
def test_nobody_is_called_for_a_run_that_has_finished(outcome: Outcome) -> None:
    """Its ranks fall silent, and have said why."""
    assert (outcome.pages, outcome.critical) == ([], [])
    assert outcome.liveness["state"] == "finished"
    assert set(outcome.more["exit_codes"].values()) == {0}


@story(by_night=(stories.interrupted,))
def test_nobody_is_called_for_ctrl_c(outcome: Outcome) -> None:
    """SIGINT to all ranks."""
    assert (outcome.pages, outcome.critical) == ([], [])
    assert outcome.liveness["state"] == "cancelled"
    assert 0 not in outcome.more["exit_codes"].values()


@story(stories.terminated)
def test_nobody_is_called_for_the_sigterm_of_a_scheduler(outcome: Outcome) -> None:
    """The time is up, or somebody with more rights has come."""
    assert (outcome.pages, outcome.critical) == ([], [])
    assert outcome.liveness["state"] in ("cancelled", "preempted")
    assert set(outcome.more["exit_codes"].values()) == {-15}


@story(stories.traceback)
def test_a_run_that_fails_is_called_with_who_failed_first(outcome: Outcome) -> None:
    """Once; that the launcher then ends the others is no hang."""
    assert [page.names() for page in outcome.firing] == [["StragglerRunFailed"]]
    assert "rank 1 on node-0 failed first: " in outcome.text
    assert outcome.liveness["state"] == "failed"
    assert outcome.more["exit_codes"][1] == 1


@story(by_night=(stories.given_up,))
def test_a_launcher_that_gives_up_is_called_with_its_attempts(outcome: Outcome) -> None:
    """After the last restart that it has."""
    assert [page.names() for page in outcome.firing] == [["StragglerRunFailed"]]
    assert "in attempt 1: the launcher has given up after 2 attempts" in outcome.text


@story(stories.long_checkpoint)
def test_nobody_is_called_for_a_checkpoint_of_five_minutes(outcome: Outcome) -> None:
    """Ten times as long as the least timeout; both are compressed in time alike."""
    assert (outcome.pages, outcome.critical) == ([], [])


@story(
    stories.requeued,
    stories.moved,
    by_night=(stories.restarted, stories.renumbered, stories.shrunk),
)
def test_nobody_is_called_for_a_run_that_begins_again(outcome: Outcome) -> None:
    """With the same run id: as it was, requeued, on another node, renumbered, smaller."""
    assert (outcome.pages, outcome.critical) == ([], [])
    assert outcome.liveness["state"] == "training"
    assert set(outcome.liveness["ranks"]) == {"ok"}


@story(stories.killed_collector)
def test_a_killed_collector_resolves_nothing(outcome: Outcome) -> None:
    """The chat is told that it is down; the page for its hung run stands, its healthy run is no
    page."""
    assert [page.names() for page in outcome.firing] == [["StragglerRunHung"]]
    assert outcome.more["after"] == []
    assert outcome.more["of_healthy"] == []
    assert outcome.more["down"].names() == ["StragglerCollectorDown"]
    assert outcome.more["down_delay_s"] < MAX_S


@story(by_night=(stories.other_collector,))
def test_a_collector_that_is_down_mutes_no_run_of_another(outcome: Outcome) -> None:
    """The run that hangs afterwards is paged."""
    assert [page.names() for page in outcome.firing] == [["StragglerRunHung"]]
    assert outcome.delay_s < MAX_S


@story(stories.requested_not_to_page, by_night=(stories.observed,))
def test_what_may_not_page_is_shown_and_nobody_is_called(outcome: Outcome) -> None:
    """A collector in mode observe, and a run with training.run.page=false: the same alerts, with
    mode=observe, at a receiver that calls nobody."""
    assert outcome.pages == []
    shown = outcome.more["shown"]
    assert {alert["labels"]["mode"] for alert in shown.alerts} == {"observe"}
