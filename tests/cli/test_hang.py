"""``otel-straggler hang``."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four ranks; rank 2 did not join the seventh all_reduce."""
    for rank in range(4):
        newest = 6 if rank == 2 else 7
        entry = {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": newest,
            "profiling_name": "nccl:all_reduce",
            "state": "completed" if rank == 2 else "scheduled",
            "is_p2p": False,
        }
        reported = {
            "pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {
                "0": {"last_enqueued_collective": newest, "last_completed_collective": 6}
            },
            "entries": [entry],
        }
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(reported))
    return tmp_path


def test_the_rank_is_named_in_a_sentence(call: Any, folder: Path) -> None:
    """With what to do; what was read goes to standard error."""
    code, out, err = call("hang", str(folder))
    assert code == 0
    assert out == (
        "Rank 2 did not join all_reduce #7 of default_pg; ranks 0, 1 and 3 wait for it. It was "
        "busy elsewhere: look at its Python stack (py-spy) and its last section.\n"
    )
    assert "ranks 0 to 3" in err


def test_programs_get_json(call: Any, folder: Path) -> None:
    """With a version, and files that were not read."""
    (folder / "other_9").write_bytes(b"no dump")
    code, out, _ = call("hang", str(folder), "--json")
    reported = json.loads(out)
    assert (code, reported["schema_version"], reported["ranks"]) == (0, 1, [0, 1, 2, 3])
    assert [(c["rank"], c["why"], c["waiting"]) for c in reported["culprits"]] == [
        (2, "never_joined", [0, 1, 3])
    ]
    assert "other_9" in reported["remarks"][0]


def test_a_folder_that_is_none_is_an_error(call: Any, tmp_path: Path) -> None:
    """In one line."""
    code, out, err = call("hang", str(tmp_path / "nowhere"))
    assert (code, out) == (2, "")
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" in err
