"""Server-sent events: what is told, when, to how many, and how it ends."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_straggler.collector.api.events import COMMENT, MAX_OF_CLIENT, EventStreams, Pace

PATIENCE_S = 30.0


class Reader:
    """Reads events as a browser does."""

    def __init__(self, address: str, query: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        self.connection.request("GET", f"/v1/events{query}")
        self.response = self.connection.getresponse()

    @property
    def status(self) -> int:
        return self.response.status

    def block(self) -> list[str]:
        """The lines up to the next empty one; none at the end of the stream."""
        lines = []
        while line := self.response.readline():
            if line == b"\n":
                break
            lines.append(line.decode().rstrip("\n"))
        return lines

    def event(self, name: str) -> dict[str, Any]:
        """The data of the next event of this name."""
        while block := self.block():
            if block[0] == f"event: {name}":
                result: dict[str, Any] = json.loads(block[1].removeprefix("data: "))
                return result
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self.connection.close()
        self.response.close()


@contextmanager
def reading(live: Any, query: str = "") -> Iterator[Reader]:
    reader = Reader(live.addresses["metrics"], query)
    try:
        yield reader
    finally:
        reader.close()


def feed(live: Any, kit: Any, first: int = 0, run_id: str = "run") -> None:
    for number in range(2):
        live.post(kit.spans_of(kit.rank(number, run_id=run_id), range(first, first + 8)))


def test_the_first_event_comes_at_once_and_matches_the_picture(live: Any, kit: Any) -> None:
    """With how long to wait before coming back, and never kept by anybody in between."""
    feed(live, kit)
    kit.eventually(lambda: live.get("/v1/run").status == 200)
    with reading(live, "?run=run") as reader:
        assert reader.response.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert reader.response.getheader("cache-control") == "no-store"
        assert reader.block() == ["retry: 1000"]
        reported = reader.event("snapshot")
    assert reported.keys() == {"snapshot", "now_s", "last"}
    kit.eventually(lambda: live.get("/v1/run").json()["timeline"]["last"] is not None)
    with reading(live, "?run=run") as reader:
        reported = reader.event("snapshot")
    run_view = kit.eventually(
        lambda: (p := live.get("/v1/run").json())["snapshot"] == reported["snapshot"] and p
    )
    assert reported["last"] == run_view["timeline"]["last"]


def test_what_happens_is_told(live: Any, kit: Any) -> None:
    feed(live, kit)
    with reading(live, "?run=run") as reader:
        first = reader.event("snapshot")
        feed(live, kit, 8)
        second = reader.event("snapshot")
        while second["snapshot"] == first["snapshot"]:
            second = reader.event("snapshot")
        assert second["now_s"] >= first["now_s"] + 1.0  # at most once a second


def test_new_runs_are_told(live: Any, kit: Any) -> None:
    with reading(live) as reader:
        assert reader.block() == ["retry: 1000"]
        feed(live, kit, run_id="one")
        assert reader.event("runs") == {"n": 1}
        feed(live, kit, run_id="two")
        while reader.event("runs") != {"n": 2}:
            pass


def test_a_run_that_is_not_known_yet_is_waited_for(live: Any, kit: Any) -> None:
    """A refusal would end an EventSource for good, and after a restart runs come back late."""
    with reading(live, "?run=run") as reader:
        assert reader.status == 200
        assert reader.block() == ["retry: 1000"]
        feed(live, kit)
        assert reader.event("snapshot")["snapshot"]


def test_a_page_that_comes_back_after_a_restart_is_told_again(start: Any, kit: Any) -> None:
    """And sees by the time of the start that it has to begin anew."""
    first = start()
    feed(first, kit)
    with reading(first, "?run=run") as reader:
        reader.event("snapshot")
        began_s = first.get("/v1/runs").json()["started_at_s"]
        first.stop()
        while reader.block():
            pass  # to the end of the stream
    address = first.addresses["metrics"]
    second = start(metrics__listen=address)
    with reading(second, "?run=run") as reader:
        feed(second, kit)
        assert reader.event("snapshot")["snapshot"]
    assert second.get("/v1/runs").json()["started_at_s"] > began_s


def test_of_one_address_the_oldest_of_too_many_streams_ends(live: Any, kit: Any) -> None:
    """It is asked to come back later; all others go on, and another page is let in."""
    readers = [Reader(live.addresses["metrics"]) for _ in range(MAX_OF_CLIENT + 1)]
    try:
        assert {reader.status for reader in readers} == {200}
        assert readers[0].block() == ["retry: 1000"]
        assert readers[0].block() == ["retry: 30000"]
        assert readers[0].block() == []
        feed(live, kit)
        assert readers[1].event("runs") == readers[-1].event("runs") == {"n": 1}
    finally:
        for reader in readers:
            reader.close()


def test_a_stop_is_not_held_up_by_pages(start: Any) -> None:
    """They are told that the stream ends; a browser then comes back by itself."""
    live = start()
    with reading(live) as reader:
        assert reader.block() == ["retry: 1000"]
        live.stop()
        assert reader.block() == []


# --- without a collector: time goes as a test wants ----------------------------------------------


class FleetStatus:
    """Pictures of which a test says what changes."""

    def __init__(self) -> None:
        self.state: str | None = "a"
        self.of_list = "l"
        self.firsts = 0
        self.look_s = 1000.0

    def list_state(self, prefix: str = "") -> tuple[int, str]:
        return 3, self.of_list

    def run_state(self, run_id: str) -> str | None:
        assert run_id == "first"
        return self.state

    def newest_seq(self, run_id: str) -> int | None:
        return 7

    def first(self, prefix: str = "") -> str | None:
        self.firsts += 1
        return "first" if self.firsts > 1 else None


def streams(watched: FleetStatus, **pace: float) -> EventStreams:
    reported = {"look_s": 0.001, "between_s": 0.0, "comment_s": 1000.0, **pace}
    return EventStreams(watched, lambda: 5.0, Pace(**reported))  # type: ignore[arg-type]


def test_a_stream_without_a_run_watches_the_first_that_comes() -> None:
    async def read() -> list[bytes]:
        stream = streams(FleetStatus()).open(None)
        pieces = aiter(stream)
        return [await anext(pieces), await anext(pieces)]

    retry, first = asyncio.run(read())
    assert retry == b"retry: 1000\n\n"
    assert first == b'event: snapshot\ndata: {"snapshot":"a","now_s":5.0,"last":7}\n\n'


def test_a_quiet_stream_shows_that_it_is_there() -> None:
    """So that nobody in between closes it, and a reader who is gone is found out."""

    async def read() -> bytes:
        watched = FleetStatus()
        watched.state = None
        stream = streams(watched, comment_s=0.01).open("first")
        pieces = aiter(stream)
        await anext(pieces)
        return await anext(pieces)

    assert asyncio.run(read()) == COMMENT


def test_changes_are_told_together_and_each_once() -> None:
    async def read() -> list[bytes]:
        watched = FleetStatus()
        stream = streams(watched).open("first")
        pieces = aiter(stream)
        result = [await anext(pieces), await anext(pieces)]
        watched.state, watched.of_list = "b", "m"
        return [*result, await anext(pieces)]

    assert asyncio.run(read())[2] == (
        b'event: runs\ndata: {"n":3}\n\n'
        b'event: snapshot\ndata: {"snapshot":"b","now_s":5.0,"last":7}\n\n'
    )


def test_news_is_told_once_more_when_a_new_picture_is_made() -> None:
    """Who asked too early got one that was made for somebody else just before; without another
    event they would keep it for ever, where a run has ended."""

    async def read() -> list[bytes]:
        watched = FleetStatus()
        watched.look_s = 0.01
        stream = streams(watched, comment_s=0.05).open("first")
        pieces = aiter(stream)
        return [await anext(pieces) for _ in range(4)]

    _, first, second, third = asyncio.run(read())
    assert first == second
    assert third == COMMENT


def test_where_all_streams_are_taken_the_client_with_the_most_gives_way() -> None:
    open_streams = EventStreams(FleetStatus(), maximum=5, of_client=4)  # type: ignore[arg-type]
    many = [open_streams.open("first", "many") for _ in range(4)]
    few = open_streams.open("first", "few")
    another = open_streams.open("first", "another")
    assert list(open_streams._open) == [*many[1:], few, another]
    newest = open_streams.open("first", "many")
    assert list(open_streams._open) == [*many[2:], few, another, newest]


def test_a_stream_is_counted_until_it_is_closed_once() -> None:
    open_streams = streams(FleetStatus())
    stream = open_streams.open("first")
    assert open_streams.n_open == 1
    stream.close()
    stream.close()
    assert open_streams.n_open == 0
