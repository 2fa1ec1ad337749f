"""Dumps of PyTorch's flight recorder: what is read, and what is not run."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import InputError
from otel_straggler.recordings.diagnostics_files import read_flight_record, read_flight_records


def dump(**changes: Any) -> dict[str, Any]:
    """As PyTorch writes it: rank 1 of a pair in a job of four."""
    entry = {
        "pg_id": 5,
        "process_group": ("35", "TENSOR"),
        "collective_seq_id": 8,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:_all_gather_base",
        "state": "scheduled",
        "is_p2p": False,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["BFloat16"],
    }
    return {
        "version": "2.9",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "35": {"name": "35", "desc": "TENSOR", "ranks": "[0, 1]"},
            "112": {"name": "112", "desc": "", "ranks": [1, 3]},
        },
        "pg_status": {
            "0": {"last_enqueued_collective": 3, "last_completed_collective": 3},
            "5": {"last_enqueued_collective": 8, "last_completed_collective": 7},
            "17": {"last_enqueued_collective": 0, "last_completed_collective": -1},
        },
        "entries": [entry],
        **changes,
    }


@pytest.mark.parametrize("form", [pickle.dumps, lambda d: json.dumps(d).encode()])
def test_a_dump_is_read_with_its_groups_and_calls(tmp_path: Path, form: Any) -> None:
    """Pickle and JSON; groups by their ranks, status by group."""
    (tmp_path / "nccl_trace_rank_1").write_bytes(form(dump()))
    ((record,), remarks) = read_flight_records(tmp_path)
    assert (record.rank, remarks) == (1, [])
    named = {group.description: group for group in record.groups}
    assert named["default_pg"].ranks == (0, 1, 2, 3)
    assert record.enqueued[named["TENSOR"]] == 8
    assert record.completed == {named["default_pg"]: 3, named["TENSOR"]: 7, named[""]: -1}
    (call,) = record.pending
    assert str(call) == "all_gather_base #8 of TENSOR"
    assert (call.sizes, call.dtypes) == (((4, 2),), ("BFloat16",))
    assert str(named[""]) == "group of ranks 1, 3"


def test_the_other_end_of_a_send_is_a_global_rank(tmp_path: Path) -> None:
    """PyTorch tells places in the group."""
    entry = dump()["entries"][0] | {
        "process_group": ("112", ""),
        "pg_id": 17,
        "is_p2p": True,
        "p2p_seq_id": 4,
        "profiling_name": "nccl:recv 0<-1",
    }
    path = tmp_path / "rank1"
    path.write_bytes(pickle.dumps(dump(entries=[entry])))
    (call,) = read_flight_record(path, 1).calls
    assert (call.name, call.peer, call.sequence) == ("recv", 3, 4)


def test_an_empty_dump_is_that_of_a_rank_that_could_say_nothing(tmp_path: Path) -> None:
    """It is read, not left out."""
    (tmp_path / "_dump_0").write_bytes(b"")
    ((record,), _) = read_flight_records(tmp_path)
    assert (record.rank, record.calls, record.groups) == (0, (), ())


class _Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (print, ("this must not be printed",))


def test_a_pickle_that_wants_to_run_something_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and the others are read."""
    (tmp_path / "_dump_0").write_bytes(pickle.dumps(_Evil()))
    (tmp_path / "_dump_1").write_bytes(pickle.dumps(dump()))
    records, (remark,) = read_flight_records(tmp_path)
    assert [record.rank for record in records] == [1]
    assert "_dump_0" in remark
    assert "print" in remark
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "body",
    [
        b"not a pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": []}),
        pickle.dumps(dump(pg_config={"0": {}})),
        pickle.dumps(dump(pg_config={"0": {"ranks": "[0,"}})),
        pickle.dumps(dump(entries=[{"state": "scheduled"}])),
        pickle.dumps(dump())[:-20],
        b"{",
    ],
)
def test_a_file_that_is_no_dump_is_refused_by_name(tmp_path: Path, body: bytes) -> None:
    """With what was found in it."""
    path = tmp_path / "_dump_7"
    path.write_bytes(body)
    with pytest.raises(InputError, match="_dump_7"):
        read_flight_record(path, 7)


@given(noise=st.binary(max_size=200), index=st.floats(0.0, 1.0))
def test_damaged_dumps_are_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, index: float
) -> None:
    """Bytes changed anywhere: read, or refused with a sentence."""
    body = bytearray(pickle.dumps(dump()))
    start = int(index * len(body))
    body[start : start + len(noise)] = noise
    path = tmp_path_factory.mktemp("damaged") / "_dump_1"
    path.write_bytes(bytes(body))
    records, remarks = [], []
    try:
        records.append(read_flight_record(path, 1))
    except InputError as error:
        remarks.append(str(error))
    assert [record.rank for record in records] == [1] or "_dump_1" in remarks[0]


def test_a_dump_cannot_ask_for_memory(tmp_path: Path) -> None:
    """Five bytes that number a memo with two billion: it is read, within 4 GiB of addresses."""
    path = tmp_path / "_dump_1"
    path.write_bytes(pickle.dumps(dump(), protocol=2)[:-1] + b"r\xff\xff\xff\x7f.")
    program = (
        "import resource, sys; from pathlib import Path; "
        "from otel_straggler.recordings.diagnostics_files import read_flight_record; "
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32)); "
        "print(read_flight_record(Path(sys.argv[1]), 1).rank)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_lists_that_share_their_parts_are_no_text(tmp_path: Path) -> None:
    """Thirty lists, each twice in the next, would be a text of some gigabytes."""
    nested: list[object] = []
    for _ in range(30):
        nested = [nested, nested]
    path = tmp_path / "_dump_1"
    path.write_bytes(pickle.dumps(dump(pg_config={"0": {"ranks": "[0]", "desc": nested}})))
    with pytest.raises(InputError, match="a list where a text is expected"):
        read_flight_record(path, 1)


def test_a_folder_without_dumps_says_how_to_get_them(tmp_path: Path) -> None:
    """The variables of PyTorch."""
    with pytest.raises(InputError, match="TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        read_flight_records(tmp_path / "nowhere")
    (tmp_path / "fault_injection.log").write_text("12")
    with pytest.raises(InputError, match="nccl_trace_rank_12"):
        read_flight_records(tmp_path)


def test_two_dumps_of_a_rank_are_of_two_hangs(tmp_path: Path) -> None:
    """Nobody can say which counts."""
    for name in ("a_rank_3", "b_rank_3"):
        (tmp_path / name).write_bytes(pickle.dumps(dump()))
    with pytest.raises(InputError, match="second dump of rank 3"):
        read_flight_records(tmp_path)
