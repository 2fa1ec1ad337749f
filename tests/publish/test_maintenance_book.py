"""The book of maintenance: who is under it, until when, and that it is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_straggler.collector.api.maintenance import MAX_NODES, MaintenanceBook
from otel_straggler.errors import InputError
from otel_straggler.model.alert import Maintenance

S = 1_000_000_000


class Clock:
    now_ns = 1_000 * S

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> MaintenanceBook:
    return MaintenanceBook(clock)


def work(node: str, until_s: float = 2_000.0, **changes: Any) -> Maintenance:
    reported: dict[str, Any] = {"reason": "a fan", "by": "ada", "at_ns": 1_000 * S, **changes}
    return Maintenance(node=node, until_ns=int(until_s * S), **reported)


def nodes(book: MaintenanceBook) -> list[str]:
    return [each.node for each in book.in_force()]


def test_it_lasts_until_its_end(book: MaintenanceBook, clock: Clock) -> None:
    """By the clock, not by being asked; in the order of the nodes."""
    assert book.record(work("b", 1_100.0)) is False
    assert book.record(work("a", 1_050.0)) is False
    assert nodes(book) == ["a", "b"]
    clock.now_ns = 1_050 * S
    assert nodes(book) == ["b"]
    clock.now_ns = 1_100 * S
    assert nodes(book) == []


def test_the_newest_word_on_a_node_counts(book: MaintenanceBook) -> None:
    """It may last longer, or shorter, or be over."""
    book.record(work("a", 1_100.0))
    assert book.record(work("a", 1_050.0, reason="done soon")) is True
    [each] = book.in_force()
    assert (each.until_ns, each.reason) == (1_050 * S, "done soon")
    assert book.record(work("a", 0.0)) is True
    assert nodes(book) == []
    assert book.record(work("a", 0.0)) is False


def test_there_is_room_for_so_many_nodes_and_no_more(book: MaintenanceBook, clock: Clock) -> None:
    """One more is refused with a sentence; those that are over make room."""
    for number in range(MAX_NODES):
        book.record(work(f"n{number}", 1_100.0 if number else 1_050.0))
    with pytest.raises(InputError, match=r"got 'one-more'; expected at most 1000 hosts .*end"):
        book.record(work("one-more"))
    assert book.record(work("n5")) is True  # it has its place already
    clock.now_ns = 1_060 * S
    book.record(work("one-more"))
    assert len(nodes(book)) == MAX_NODES


def test_it_survives_a_restart(book: MaintenanceBook, clock: Clock) -> None:
    """By way of JSON; what is over in between is over."""
    book.record(work("a", 1_050.0))
    book.record(work("b", 1_100.0))
    state = json.loads(json.dumps(book.state()))
    clock.now_ns = 1_060 * S
    after = MaintenanceBook(clock)
    after.record(work("c", reason="told before it was restored"))
    after.restore(state)
    assert after.in_force()[:1] == book.in_force() == (work("b", 1_100.0),)
    assert nodes(after) == ["b", "c"]


@pytest.mark.parametrize(
    "state", [{}, {"version": 2, "book": []}, {"version": 1, "book": [{"node": "a"}]}]
)
def test_a_foreign_state_is_refused_and_changes_nothing(book: MaintenanceBook, state: Any) -> None:
    """The keeper says so, and goes on without it."""
    book.record(work("a"))
    with pytest.raises((ValueError, KeyError, TypeError)):
        book.restore(state)
    assert nodes(book) == ["a"]
