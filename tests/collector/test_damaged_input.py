"""Damaged files and bodies at a collector: read, or refused with a sentence; any other exception is
a fault of ours. Requests with telemetry: tests/ingest/test_fuzz.py; queries:
test_page_routes.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_straggler.collector.access.grants import digest, read_grants
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.roles import Peer
from otel_straggler.collector.access.settings import AuthSettings
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.history.spool import Spool
from otel_straggler.collector.settings_file import load_settings
from otel_straggler.errors import StragglerError

from ..damage import damaged

GRANTS = (
    f"# who may\ningest a sha256:{digest('a')} runs=a/ max_runs=3 bytes_per_s=1000\n"
    "read b token:0123456789abcdef runs=b/\nadmin c uid:1000\noperate d certificate:d.example\n"
).encode()
EXAMPLE = (Path(__file__).parents[2] / "docs/collector.yaml").read_bytes()
DECISION = json.dumps(
    {
        "action": "mute", "run_id": "run", "subject_id": "hang", "reason": "r", "by": "b",
        "seconds": 60,
    }
).encode()  # fmt: skip
MAINTENANCE = json.dumps({"node": "n", "seconds": 60, "reason": "r", "by": "b"}).encode()
ONE_FOLDER = settings(suppress_health_check=list(HealthCheck))
"""Examples write to the same file, one after the other."""


def refusal(do: Callable[[], object]) -> str:
    """What is said of it; empty if it is accepted."""
    try:
        do()
    except StragglerError as error:
        return str(error)
    return ""


@ONE_FOLDER
@given(content=damaged([GRANTS]))
def test_a_damaged_file_of_grants_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Without a token in the message."""
    file = tmp_path / "grants"
    file.write_bytes(content)
    assert "0123456789abcdef" not in refusal(lambda: read_grants(str(file)))


@ONE_FOLDER
@given(content=damaged([EXAMPLE, b"verdicts: {block_steps: 5}\nscoring: {threshold: 0.5}\n"]))
def test_a_damaged_configuration_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "collector.yaml"
    file.write_bytes(content)
    refusal(lambda: load_settings(file, {}))


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, bytes]:
    """The name, the spool's id, and the content of a segment with three requests."""
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, max_bytes=1 << 20, syncs=False)
    spool.open()
    for number in range(3):
        spool.append(number, b"body" * number)
    spool.close()
    [path] = folder.glob("*.spool")
    return path.name, spool.id, path.read_bytes()


@ONE_FOLDER
@given(data=st.data())
def test_of_a_damaged_spool_only_whole_requests_are_read(
    tmp_path: Path, segment: tuple[str, str, bytes], data: st.DataObject
) -> None:
    """As they were appended, and in order; the collector starts."""
    name, spool_id, content = segment
    for old in tmp_path.glob("*.spool"):
        old.unlink()
    (tmp_path / "spool.id").write_text(spool_id)
    (tmp_path / name).write_bytes(data.draw(damaged([content])))
    spool = Spool(tmp_path, max_bytes=1 << 20, syncs=False)
    spool.open()
    try:
        records = list(spool.replay(after=0))
    finally:
        spool.close()
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    for record in records:
        assert record.body == b"body" * record.kind
        assert record.sequence == record.kind + 1


@given(body=damaged([DECISION, MAINTENANCE, b"[]", b"3", b'{"action": []}']))
def test_a_damaged_decision_is_recorded_or_refused(body: bytes) -> None:
    """And nothing else is raised to the server."""
    decisions, book = Decisions(lambda: 10**18), MaintenanceBook(lambda: 10**18)
    refusal(lambda: decisions.decide(body, lambda _: None))
    refusal(lambda: book.announce(body))


_HEADER: Any = st.text(st.characters(max_codepoint=255), max_size=60)


@ONE_FOLDER
@given(authorization=_HEADER | st.just("Bearer ") | _HEADER.map("Bearer {}".format), cookie=_HEADER)
def test_any_credential_is_somebody_or_nobody(
    tmp_path: Path, authorization: str, cookie: str
) -> None:
    """Nobody guesses one; what cannot be read is no error."""
    file = tmp_path / "grants"
    file.write_bytes(GRANTS)
    guard = Guard(AuthSettings(grant_files=(str(file),)))
    for each in (cookie, f"otel_straggler_token={cookie}"):
        assert guard.identify(Peer(), authorization, each).role == "public"
