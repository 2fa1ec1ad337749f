"""Checkpoints on nodes, with copies on other nodes, and in persistent storage: ranks of a process
group save on them, lose nodes, and restore."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint.folder import list_checkpoints

from .test_ranks import lines_of, restored_as_saved, start_training

ROOT = Path(__file__).parents[2]
Facts = list[dict[str, Any]]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """What the ranks report, by scenario; all of one process, as importing torch takes longest."""
    folder = tmp_path_factory.mktemp("tiers")
    command = [sys.executable, "-m", "tests.checkpoint.tiered_ranks", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=280
    )
    result: dict[str, Facts] = json.loads(done.stdout)
    return result


def values(ranks: Facts, name: str) -> list[Any]:
    return [facts[name] for facts in ranks]


def test_each_tier_keeps_its_own_number_of_checkpoints(scenarios: dict[str, Facts]) -> None:
    """Every step on the nodes, every fourth in storage too; three and one are kept."""
    for facts in scenarios["trained"]:
        assert (facts["local"], facts["persistent"], facts["exit_code"]) == ([5, 4, 3], [4], 0)


@pytest.mark.parametrize("lost", ["nothing lost", "a node lost", "renumbered"])
def test_nothing_newer_than_the_local_interval_is_lost_with_a_node(
    scenarios: dict[str, Facts], lost: str
) -> None:
    """The state of the last step, bit for bit: DTensors, moments, generators, positions, scalars;
    also with other ranks on the nodes."""
    ranks = scenarios[lost]
    assert values(ranks, "step") == [5] * 4
    assert values(ranks, "values") == values(scenarios["trained"], "at 5")


def test_a_new_node_fetches_from_the_one_that_kept_copies(scenarios: dict[str, Facts]) -> None:
    """Each file once for all ranks of the node, and nothing stays of it."""
    ranks = scenarios["a node lost"]
    assert [set(facts["files"]) for facts in ranks[:2]] == [{"local"}] * 2
    fetched = [facts["files"].get("peer", 0) for facts in ranks[2:]]
    assert 0 < sum(fetched) <= 5, "at most four shards, and the metadata"
    assert not any(facts["files"].get("persistent") for facts in ranks)
    assert values(ranks, "leftovers") == [[]] * 4


def test_with_all_nodes_lost_storage_is_what_is_left(scenarios: dict[str, Facts]) -> None:
    ranks = scenarios["all nodes lost"]
    assert values(ranks, "step") == [4] * 4
    assert values(ranks, "values") == values(scenarios["trained"], "at 4")
    assert all(set(facts["files"]) == {"persistent"} for facts in ranks)


def test_fewer_ranks_restore_the_same_state_from_the_nodes(scenarios: dict[str, Facts]) -> None:
    """Two ranks of four, one on each node, one of which is new."""
    ranks = scenarios["two ranks"]
    assert values(ranks, "step") == [5] * 2
    assert values(ranks, "values") == values(scenarios["trained"], "at 5")[:2]
    assert "peer" in ranks[1]["files"]


def test_a_node_in_a_ring_has_its_files_on_the_next(scenarios: dict[str, Facts]) -> None:
    ranks = scenarios["one of three"]
    assert values(ranks, "step") == [5] * 3
    assert values(ranks, "values") == values(scenarios["trained on three"], "at 5")


def test_files_that_no_node_has_come_from_storage_the_others_from_nodes(
    scenarios: dict[str, Facts],
) -> None:
    """Step 5 is lost with both nodes that had the files of rank 1; step 4 is in storage."""
    ranks = scenarios["two of three"]
    assert values(ranks, "step") == [4] * 3
    assert values(ranks, "values") == values(scenarios["trained on three"], "at 4")
    assert set(ranks[0]["files"]) == {"local", "persistent"}
    assert {"peer", "persistent"} >= set(ranks[1]["files"]) | set(ranks[2]["files"])


def test_a_full_node_does_not_keep_checkpoints_from_storage(scenarios: dict[str, Facts]) -> None:
    """Nothing partial stays on either node, and the first still is there."""
    for facts in scenarios["full node"]:
        assert facts["exit_code"] == 0
        assert facts["local"] == [1]
        assert facts["persistent"] == ["schedule, past the local tier", "call"]
        assert facts["leftovers"] == []


def test_who_lives_saves_on_its_node_and_in_storage(scenarios: dict[str, Facts]) -> None:
    """At an emergency after the other node has died, which can keep no copies any more."""
    first, second = scenarios["dead node"]
    assert second["exit_code"] == -signal.SIGKILL
    assert first["saved"] == [[["a node died", 2]]] * 2


def test_a_nodes_folder_of_another_run_is_refused_and_unchanged(
    scenarios: dict[str, Facts],
) -> None:
    for facts in scenarios["another run"]:
        assert "InputError: " in facts["error"]
        assert "got 'checkpoints of another run (" in facts["error"]
        assert facts["kept"] == [7]


def test_all_ranks_learn_of_one_nodes_foreign_folder(scenarios: dict[str, Facts]) -> None:
    first, second = scenarios["foreign"]
    assert "a folder without checkpoints.json of ours" in first["error"]
    assert second["error"] == first["error"]
    assert first["kept"] == second["kept"] == ["thesis.tex"]


def test_a_local_tier_on_some_ranks_alone_is_refused(scenarios: dict[str, Facts]) -> None:
    for facts in scenarios["some"]:
        assert facts["error"].startswith(
            "UsageError: Manager(local=...): got 'given on some ranks'"
        )


def test_the_process_that_writes_makes_the_copies(tmp_path: Path) -> None:
    """All processes of both ranks are killed, then one's folder is lost with its node."""
    storage, local = tmp_path / "storage", str(tmp_path / "node")
    ranks = start_training(storage, 6, LOCAL=local, WAIT="1", DIE="write:0:6", DIE_WHO="both")
    ranks[0].wait(300)
    ranks[1].send_signal(signal.SIGKILL)
    before = lines_of(ranks)
    shutil.rmtree(tmp_path / "node-1")
    assert [one.step for one in list_checkpoints(tmp_path / "node-0")] == [5, 4]
    assert list_checkpoints(storage) == []
    after = lines_of(start_training(storage, 5, LOCAL=local, IN_THREAD="1"))
    assert after[1][0].startswith("restored 5 ")
    assert restored_as_saved(before, after)
