"""Two ranks of a process group agree, save, die, and restore together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint.folder import list_checkpoints

from ..waiting import eventually

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Facts = list[dict[str, Any]]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """What the ranks report, by scenario; all of one process, as importing torch takes longest."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.checkpoint.forked_ranks", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    result: dict[str, Facts] = json.loads(done.stdout)
    return result


def test_sigterm_of_one_rank_saves_a_step_of_all_and_then_ends_it(
    scenarios: dict[str, Facts],
) -> None:
    """The others learn that they should stop, and end well."""
    first, second = scenarios["sigterm_of_one_rank"]
    assert second["exit_code"] == -signal.SIGTERM
    assert first["exit_code"] == 0
    assert first["steps"] == [first["last_step"]]


def test_an_agents_request_on_one_node_saves_on_all_ranks(scenarios: dict[str, Facts]) -> None:
    for facts in scenarios["request_by_file"]:
        assert facts == {"reason": "hang of rank 0", "is_restored": True, "exit_code": 0}


def test_ranks_with_clocks_of_their_own_save_the_same_steps(scenarios: dict[str, Facts]) -> None:
    for facts in scenarios["interval_by_time"]:
        assert facts["exit_code"] == 0
        assert len(facts["restored"]) >= 2
        assert all(facts["restored"])


def test_who_lives_saves_what_all_have_alike_and_never_a_part(scenarios: dict[str, Facts]) -> None:
    """A sharded tensor of which the dead rank had a half is not saved."""
    first, second = scenarios["dead_rank"]
    assert second["exit_code"] == -signal.SIGKILL
    assert first == {"alike": True, "sharded": False, "exit_code": 0}


def test_a_full_disk_of_one_rank_is_no_checkpoint_of_any(scenarios: dict[str, Facts]) -> None:
    for facts in scenarios["full_disk_of_one_rank"]:
        assert facts == {
            "first": True, "second": False, "was_quick": True, "third": True, "steps": [3, 1],
            "exit_code": 0,
        }  # fmt: skip


def test_all_ranks_of_a_second_training_are_refused(scenarios: dict[str, Facts]) -> None:
    first, second = scenarios["two_trainings"]
    assert first["error"].startswith("UsageError: ")
    assert "expected a folder that nobody else writes to" in first["error"]
    assert second["error"] == first["error"]


def test_a_sharded_model_is_restored_bit_for_bit(scenarios: dict[str, Facts]) -> None:
    """FSDP2 with the moments of AdamW, into an optimizer that has not stepped."""
    for facts in scenarios["sharded_model"]:
        assert facts["saved"]
        assert (facts["step"], facts["scalar"]) == (2, 2)
        assert facts["after"] == facts["before"]


def test_another_number_of_ranks_restores_the_same(scenarios: dict[str, Facts]) -> None:
    (facts,) = scenarios["restored_by_one"]
    assert facts["step"] == 2
    assert facts["after"] == scenarios["sharded_model"][0]["before"]


def test_a_function_in_the_place_of_one_ranks_object_ends_the_restore_on_all(
    scenarios: dict[str, Facts],
) -> None:
    """That rank says what it is; the others who it was, before anything is changed."""
    first, second = scenarios["object_of_one_rank"]
    assert second["error"].startswith("InputError: ")
    assert "it has objects of posix.mkdir (state 'of.rank 1.position')" in second["error"]
    assert first["error"].startswith("UnavailableError: ")
    assert "rank 1: " in first["error"]
    assert "posix.mkdir" in first["error"]
    for facts in (first, second):
        assert (facts["has_run"], facts["is_unchanged"], facts["exit_code"]) == (False, True, 0)


def test_a_pickle_in_the_store_is_not_run_and_all_ranks_learn_of_it(
    scenarios: dict[str, Facts],
) -> None:
    for facts in scenarios["forged_message"]:
        assert "message offer/1 of rank 1: got" in facts["error"]
        assert facts["error"].startswith("RankFailedError: ")
        assert (facts["has_run"], facts["exit_code"]) == (False, 0)


def test_a_folder_that_others_can_change_is_refused_on_all_ranks(
    scenarios: dict[str, Facts],
) -> None:
    first, second = scenarios["folder_of_others"]
    assert "mode 0775" in first["error"]
    assert second["error"] == first["error"]


def start_training(folder: Path, steps: int, **env: str) -> list[subprocess.Popen[str]]:
    """Two ranks whose checkpoints DCP's dedicated process writes, each in a process group."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, str(HERE / "training_rank.py"), str(folder), str(port)]
    return [
        subprocess.Popen(
            [*program, str(rank), str(steps)], env={**os.environ, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for rank in range(2)
    ]  # fmt: skip


def lines_of(ranks: list[subprocess.Popen[str]]) -> list[list[str]]:
    return [rank.communicate(timeout=120)[0].splitlines() for rank in ranks]


def restored_as_saved(before: list[list[str]], after: list[list[str]]) -> bool:
    """Whether each rank has after its restore what it had at that step, random numbers included."""
    for old, new in zip(before, after, strict=True):
        _, step, digest = new[0].split()
        if f"step {step} {digest}" not in old:
            return False
    return True


def test_sigterm_of_every_process_is_survived_by_a_checkpoint(tmp_path: Path) -> None:
    """As a scheduler sends it: also to the process that writes."""
    ranks = start_training(tmp_path / "c", 100_000, ON_REQUEST="1", SLOW="1", WAIT="1")
    assert ranks[1].stdout is not None
    seen = [ranks[1].stdout.readline() for _ in range(6)]
    for rank in ranks:
        os.killpg(rank.pid, signal.SIGTERM)
    before = lines_of(ranks)
    before[1] = [line.strip() for line in seen] + before[1]
    assert [rank.returncode for rank in ranks] == [-signal.SIGTERM] * 2
    (one,) = eventually(lambda: list_checkpoints(tmp_path / "c"))
    assert one.problem == ""
    assert before[0][-1].startswith(f"step {one.step} ")
    assert restored_as_saved(before, lines_of(start_training(tmp_path / "c", one.step)))


def test_a_kill_in_the_process_that_writes_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """The training is killed with it; the next one finds nothing partial."""
    ranks = start_training(tmp_path / "c", 8, DIE="write:0:6", WAIT="1")
    ranks[0].wait(120)
    ranks[1].kill()
    before = lines_of(ranks)
    assert restored_as_saved(before, after := lines_of(start_training(tmp_path / "c", 4)))
    assert after[0][0].startswith("restored 4 ")
