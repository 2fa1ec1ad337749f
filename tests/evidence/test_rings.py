"""The ring's file of a process that is dead, stopped or blocked says where it was."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_straggler.cli import main
from otel_straggler.client import ring_file
from otel_straggler.client.recording import FORM
from otel_straggler.client.ring_file import (
    RingFileError,
    RingIdentity,
    read_ring_file,
    write_identity,
)
from otel_straggler.native import REASON

pytestmark = pytest.mark.skipif(
    FORM == "python", reason=f"{REASON}: it would show where a dead process was"
)


def read_ring(data: bytes) -> ring_file.RingState:
    """Read bytes that do not change."""
    return ring_file._state(lambda offset, count: data[offset : offset + count], len(data))


@pytest.mark.parametrize("compression", ["none", "gzip"], ids=["C++ sends", "Python sends"])
def test_a_killed_rank_is_told_with_section_step_and_how_long(
    start: Any, wait: Any, tmp_path: Path, compression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL, as the kernel sends it where memory runs out; in a sentence, and as JSON."""
    stuck = start("asleep", rank=3, OTEL_RESOURCE_ATTRIBUTES="host.name=node-1",
                  OTEL_EXPORTER_OTLP_COMPRESSION=compression)  # fmt: skip
    assert stuck.line() == "stuck"
    wait(lambda: has_lasted(tmp_path, 1.0))
    stuck.close()
    assert main(["hang", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^rank 3 \(node-1, dead\): in section forward of step 812 for [1-9]\d* s when it last "
        r"wrote, since \d\d:\d\d:\d\d UTC; before that data of step 812 \([\de.-]+ s\)\.$",
        out,
        re.MULTILINE,
    ), out
    assert main(["hang", str(tmp_path), "--json"]) == 0
    [ring] = json.loads(capsys.readouterr().out)["rings"]
    assert (ring["rank"], ring["node"], ring["status"], ring["step"]) == (3, "node-1", "dead", 812)
    assert ring["open_section"]["name"] == "forward"
    assert ring["open_section"]["open_s"] >= 1.0
    assert [run["name"] for run in ring["ended"]] == ["data"]


def has_lasted(folder: Path, seconds: float) -> bool:
    """By its own word."""
    [path] = folder.glob("*.ring")
    state = read_ring_file(path)
    run = state.open_section
    return run is not None and state.alive_ns - run.start_ns > seconds * 1e9


@pytest.mark.parametrize(("way", "status"), [("keeps_the_gil", "alive"), ("asleep", "stopped")])
def test_a_living_rank_is_told_until_now(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, status: str
) -> None:
    """It need not be asked, and need not be able to answer."""
    stuck = start(way, rank=1)
    assert stuck.line() == "stuck"
    if status == "stopped":
        stuck.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stuck.pid, os.WSTOPPED | os.WNOWAIT)
    assert main(["hang", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f", {status}): in section forward of step 812" in out
    assert "when it last wrote" not in out


def test_a_ring_of_another_machine_is_not_called_dead(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers of processes mean nothing here; a shared folder has files of many."""
    stuck = start("asleep", rank=2)
    assert stuck.line() == "stuck"
    stuck.close()
    [path] = tmp_path.glob("*.ring")
    identity = RingIdentity(run_id="stuck-run", rank=2, node="far", started="1", boot="other")
    write_identity(path, identity)
    assert main(["hang", str(tmp_path)]) == 0
    assert "rank 2 (far, another machine): in section forward" in capsys.readouterr().out


def test_a_damaged_ring_is_a_finding_beside_the_others(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not hide them."""
    stuck = start("asleep")
    assert stuck.line() == "stuck"
    stuck.close()
    (tmp_path / "cut.ring").write_bytes(b"OTSRING\0" + bytes(50))
    (tmp_path / "empty.ring").write_bytes(b"")
    assert main(["hang", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "in section forward" in out
    assert "cut.ring" in err
    assert "empty.ring" in err


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a stuck rank, with its identity."""
    from .conftest import Stuck

    folder = tmp_path_factory.mktemp("ring")
    stuck = Stuck(
        "asleep",
        folder,
        {"OTEL_STRAGGLER_RING_DIR": str(folder), "OTEL_STRAGGLER_ENDPOINT": "http://127.0.0.1:1"},
    )
    assert stuck.line() == "stuck"
    stuck.close()
    [path] = folder.glob("*.ring")
    return path.read_bytes()


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_damage_of_a_ring_is_more_than_an_error(whole: bytes, data: st.DataObject) -> None:
    """Whatever stands in the header, the identity, the stacks or the newest records."""
    damaged = bytearray(whole)
    ring_offset = int.from_bytes(whole[72:80], "little")
    indexes = st.one_of(
        st.integers(0, 500),
        st.integers(1_024, 1_300),
        st.integers(4_096, 4_600),
        st.integers(528_384, 530_000),
        st.integers(ring_offset, ring_offset + 512),
    )
    for at in data.draw(st.lists(indexes, min_size=1, max_size=8)):
        damaged[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    try:
        state = read_ring(bytes(damaged))
    except RingFileError:
        return
    assert len(state.ended_runs) <= 8
    assert state.identity.rank is None or state.identity.rank >= 0


@given(st.integers(0, 2**20))
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_ring_that_was_cut_is_an_error(whole: bytes, length: int) -> None:
    """As of a disk that was full when it was copied."""
    with pytest.raises(RingFileError):
        read_ring(whole[:length])


def test_a_file_of_an_older_version_has_no_identity(whole: bytes) -> None:
    """All else is told."""
    state = read_ring(whole[:1_024] + bytes(3_072) + whole[4_096:])
    assert state.identity == RingIdentity()
    assert state.open_section is not None
