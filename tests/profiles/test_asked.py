"""A rank profiles some steps because its collector asks, unless something else has CUPTI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import otel_straggler as ots
from otel_straggler import semconv
from otel_straggler.client import process
from otel_straggler.client.diagnostics import profiles
from otel_straggler.client.diagnostics.commands import CommandPoll
from otel_straggler.client.diagnostics.profiles import AskedProfile
from otel_straggler.client.gpu.reasons import GpuTimingState
from otel_straggler.client.settings import resolve_settings
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.model.operator_tables import OUTSIDE, read_operator_table
from otel_straggler.otlp.clients.client import Response

torch = pytest.importorskip("torch", reason="without torch a rank has no operators")


@pytest.fixture(autouse=True)
def nobody_listens() -> Iterator[None]:
    yield
    assert not STEP_LISTENERS.are_there


def train(numbers: range) -> None:
    weight = torch.ones(8, 8)
    for number in numbers:
        ots.step(number)
        for _ in range(number):
            weight @ weight


def test_both_ranks_record_the_steps_that_they_were_asked_for() -> None:
    """Not the steps before, nor those of warm-up; then nothing is left that listens."""
    asked = AskedProfile(7, 2, rank=3)
    train(range(9))
    assert asked.answer() is None
    train(range(9, 12))
    body: Any = asked.answer()
    table = read_operator_table(json.loads(json.dumps(body)), 3)
    assert (table.first_step, table.n_steps) == (7, 2)
    calls = {each.name: each.calls for each in table.operators}
    assert (calls["aten::mm"], calls[OUTSIDE]) == (7 + 8, 2)


def test_a_rank_that_is_past_the_first_step_begins_with_the_next() -> None:
    """It asked late; better other steps than none."""
    asked = AskedProfile(2, 1, rank=0)
    train(range(20, 25))
    body: Any = asked.answer()
    assert body["first_step"] == 22


@pytest.mark.parametrize(
    ("env", "tier", "why"),
    [
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "off", "Nsight Systems profiles this process"),
        ({}, "cupti", "kernels of this rank are timed by CUPTI (gpu_timing)"),
    ],
)
def test_while_something_else_has_cupti_nothing_begins(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], tier: Any, why: str
) -> None:
    """And the answer says what."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    state = GpuTimingState(tier=tier, wanted=tier, reason="")
    monkeypatch.setattr(process, "gpu_timing", lambda: state)
    asked = AskedProfile(0, 1, rank=0)
    assert asked.answer() == {"reason": why}


def test_the_program_s_own_profile_is_left_alone() -> None:
    """It is known only in the thread of the loop, where torch keeps it."""
    asked = AskedProfile(0, 1, rank=0)
    with torch.profiler.profile() as theirs:
        train(range(3))
    assert asked.answer() == {"reason": "torch.profiler is at work already"}
    assert any(event.key == "aten::mm" for event in theirs.key_averages())


def test_a_profile_that_the_program_has_begun_by_this_package_is_left_alone(tmp_path: Any) -> None:
    """Also while it waits for its steps."""
    with ots.profile(tmp_path, skip_first=100):
        assert AskedProfile(0, 1, rank=0).answer() == {
            "reason": "another profile of this package is open"
        }


def test_steps_that_do_not_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler that is at work stops with the next step, whenever that begins."""
    monkeypatch.setattr(profiles, "MAX_WAIT_S", 0.0)
    asked = AskedProfile(0, 5, rank=0)
    ots.step(0)
    answer: Any = asked.answer()
    assert "did not end" in answer["reason"]
    train(range(1, 3))
    assert not torch.autograd._profiler_enabled()
    assert AskedProfile(0, 1, rank=0).answer() != {
        "reason": "another profile of this package is open"
    }
    ots.step(4)
    ots.step(5)


# --- over the poll -------------------------------------------------------------------------------


class FakeClient:
    """Answers polls; remembers what was sent."""

    url = "http://collector/v1/commands"

    def __init__(self, commands: list[dict[str, Any]]) -> None:
        self.commands = commands
        self.sent: list[tuple[str, Any]] = []

    def _answer(self) -> Response:
        return Response(200, body=json.dumps({"commands": self.commands}).encode())

    def get(self, query: str) -> Response:
        self.sent.append((query, None))
        return self._answer()

    def send(self, _method: str, body: bytes, *, query: str, headers: Any) -> Response:
        del headers
        self.sent.append((query, json.loads(body)))
        return self._answer()

    def close(self) -> None: ...


@pytest.fixture
def polled() -> tuple[CommandPoll, FakeClient]:
    settings = resolve_settings({"endpoint": "http://127.0.0.1:9", "run_id": "r", "rank": 0})
    verbs = {
        semconv.PROFILE: lambda command: AskedProfile(command.first_step, command.steps, rank=0)
    }
    poll = CommandPoll(settings, lambda: "session", verbs)
    command = {"id": "c1", "verb": "profile", "first_step": 3, "steps": 1}
    client = FakeClient([command])
    poll._client.close()
    poll._client = client  # type: ignore[assignment]
    return poll, client


def test_the_operators_go_with_the_outcome_once_the_steps_have_ended(
    polled: tuple[CommandPoll, FakeClient],
) -> None:
    """Polls in between report nothing, and the command is carried out once."""
    poll, client = polled
    assert not poll.poll()
    train(range(3))
    assert not poll.poll()
    assert [body for _, body in client.sent] == [None, None]
    train(range(3, 6))
    poll.poll()
    query, body = client.sent[-1]
    assert "done=c1%3Adone" in query
    assert body["profiles"]["c1"]["first_step"] == 3
    poll.poll()
    assert client.sent[-1][1] is None


def test_why_there_is_no_profile_goes_as_a_refusal(
    polled: tuple[CommandPoll, FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its reason, for the page."""
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    poll, client = polled
    poll.poll()
    poll.poll()
    query, body = client.sent[-1]
    assert "done=c1%3Arefused" in query
    assert body == {"profiles": {"c1": {"reason": "Nsight Systems profiles this process"}}}


@pytest.mark.parametrize("changes", [{"steps": 0}, {"steps": 10**9}, {"steps": "3"},
                                     {"first_step": "now"}])  # fmt: skip
def test_a_command_with_steps_that_are_none_is_not_carried_out(
    polled: tuple[CommandPoll, FakeClient], changes: dict[str, Any]
) -> None:
    poll, client = polled
    client.commands = [{**client.commands[0], **changes}]
    poll.poll()
    assert not STEP_LISTENERS.are_there
