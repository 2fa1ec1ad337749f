"""Runs the stories of the tests that were chosen beside each other, on one pair of servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from benchmarks.alert_delay.stage import Stage, find_programs

from .stories import Outcome, Story

AT_ONCE = 8
"""Stories: some forty ranks, which two cores can bear."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Prometheus, an Alertmanager, a webhook, a collector; under CI they must be installed."""
    try:
        find_programs()
    except FileNotFoundError as missing:
        sentence = f"{missing}: nobody saw an alert arrive"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
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
