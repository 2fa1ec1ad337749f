"""The ring is emptied once, for all who listen."""

from collections.abc import Iterator

import pytest

from otel_straggler import configure, section, shutdown
from otel_straggler.client import recording
from otel_straggler.client.recorder import Record
from otel_straggler.client.recording import RECORDER, RECORDING, Inbox
from otel_straggler.testing import CapturedRequests


def run(name: str) -> None:
    with section(name):
        pass


def names(records: list[Record]) -> list[str]:
    return [record[0][0].name for record in records]


def drained(inbox: Inbox) -> list[Record]:
    return [record for batch in inbox.drain() for record in batch]


@pytest.fixture
def received() -> Iterator[list[Record]]:
    """All records, as a second listener gets them."""
    records: list[Record] = []
    RECORDING.listen(records.extend)
    yield records
    RECORDING.reset_after_fork()
    RECORDER.disable()


def test_every_listener_gets_every_record_once() -> None:
    """Two readers see the same runs, whoever empties the ring."""
    one, two = Inbox(RECORDING), Inbox(RECORDING)
    run("a")
    assert names(drained(one)) == ["a"]
    run("b")
    assert names(drained(two)) == ["a", "b"]
    assert names(drained(one)) == ["b"]
    one.close()
    two.close()
    assert RECORDER.context is None


def test_a_report_goes_on_when_telemetry_is_configured_and_shut_down(
    received: list[Record], sink: CapturedRequests
) -> None:
    """configure() and shutdown() begin a new session id; the other listener misses no run."""
    run("before")
    configure(endpoint=sink.url, run_id="r")
    first = RECORDER.session
    run("during")
    shutdown()
    assert RECORDER.session != first
    run("after")
    RECORDING.pull()
    assert names(received) == ["before", "during", "after"]
    assert [span.name for span in sink.spans()] == ["during"]


def test_a_reader_that_does_not_come_loses_the_newest_and_knows_how_many(
    monkeypatch: pytest.MonkeyPatch, received: list[Record]
) -> None:
    """Memory stays bounded while somebody else empties the ring."""
    inbox = Inbox(RECORDING)
    monkeypatch.setattr(recording, "RING_CAPACITY", 3)
    for name in "abcde":
        run(name)
        RECORDING.pull()
    assert names(drained(inbox)) == ["a", "b", "c"]
    assert inbox.lost == 2
    assert names(received) == ["a", "b", "c", "d", "e"]


def test_a_full_ring_is_emptied_on_the_spot_where_no_thread_does(
    received: list[Record],
) -> None:
    """Without an exporter thread nothing is lost, however rarely anybody asks."""
    RECORDER.empty_here(RECORDING.pull, 2)
    try:
        for name in "abcde":
            run(name)
        RECORDING.pull()
        assert names(received) == ["a", "b", "c", "d", "e"]
        assert RECORDER.dropped == 0
    finally:
        RECORDER.empty_here(None)
