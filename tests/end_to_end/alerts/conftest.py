"""Runs the stories of the tests that were chosen beside each other, on one pair of servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.stage import Stage, find_programs

from .stories import Outcome, Story

AT_ONCE = 8
"""Stories: some forty ranks, which two cores can bear."""
GROUP_WAIT_S = 3 * servers.EVALUATION_S
"""Of two ranks that are killed together one is seen to be lost up to a heartbeat before the other:
an evaluation in between has the alert about the rank fire one evaluation before the alert about
the run, which holds it back. A wait of one evaluation would end just when that comes."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Prometheus, an Alertmanager, a webhook, a collector; under CI they must be installed."""
    try:
        find_programs()
    except FileNotFoundError as missing:
        sentence = f"{missing}: nobody saw an alert arrive"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(servers, "GROUP_WAIT_S", GROUP_WAIT_S)
        built = Stage(tmp_path_factory.mktemp("stage"))
    yield built
    built.close()


@pytest.fixture(scope="module")
def reported(
    stage: Stage, request: pytest.FixtureRequest
) -> Iterator[dict[Story, Future[Outcome]]]:
    """The outcome of every story that a chosen test is about."""
    chosen = [getattr(item, "callspec", None) for item in request.session.items]
    stories = [spec.params["outcome"] for spec in chosen if spec and "outcome" in spec.params]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {story: pool.submit(story, stage) for story in dict.fromkeys(stories)}
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.fixture
def outcome(request: pytest.FixtureRequest, reported: dict[Story, Future[Outcome]]) -> Outcome:
    """Of the story that the test names."""
    return reported[request.param].result()
