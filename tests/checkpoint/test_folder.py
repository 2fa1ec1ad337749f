"""A checkpoint is there or is not; what is no checkpoint of ours is left alone."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from otel_straggler.checkpoint import LocalTier, Manager
from otel_straggler.checkpoint.folder import MANIFEST, list_checkpoints, prune, verify
from otel_straggler.checkpoint.sources import NearestFiles
from otel_straggler.errors import InputError, UnavailableError, UsageError

from .states import manager_in, restored, saved, state_at


def shard(path: Path) -> Path:
    return next(path.glob("*.distcp"))


def truncate(path: Path) -> None:
    os.truncate(shard(path), 100)


def tear(path: Path) -> None:
    """As after a power cut: the size is right, the last block is not."""
    with shard(path).open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(64))


def flip_a_bit(path: Path) -> None:
    content = bytearray(shard(path).read_bytes())
    content[len(content) // 2] ^= 1
    shard(path).write_bytes(content)


def truncate_manifest(path: Path) -> None:
    os.truncate(path / MANIFEST, (path / MANIFEST).stat().st_size // 2)


def change_manifest(path: Path) -> None:
    manifest = path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"reason": "call"', '"reason": "cell"'))


def replace_by_link(path: Path) -> None:
    moved = shard(path).rename(path / "moved")
    (path / "__0_0.distcp").symlink_to(moved)


DAMAGES: list[Callable[[Path], None]] = [
    truncate,
    tear,
    flip_a_bit,
    lambda path: shard(path).unlink(),
    lambda path: (path / ".metadata").unlink(),
    lambda path: (path / MANIFEST).unlink(),
    lambda path: (path / MANIFEST).write_bytes(b""),
    truncate_manifest,
    change_manifest,
    replace_by_link,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_after_damage_the_one_before_is_restored_bit_for_bit(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Torn, truncated, changed, missing: never a part of it."""
    _, newest = saved(tmp_path, 1, 2)
    damage(newest)
    step, state = restored(tmp_path)
    assert step == 1
    assert torch.equal(state["weights"], state_at(1)["weights"])
    assert state["position"] == {"epoch": 1}


def test_without_damage_the_newest_is_restored(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    step, state = restored(tmp_path)
    assert step == 2
    assert torch.equal(state["weights"], state_at(2)["weights"])


def test_a_step_can_be_named(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    assert restored(tmp_path, step=1)[0] == 1
    with pytest.raises(InputError, match="got 7; expected the step of a complete checkpoint"):
        restored(tmp_path, step=7)


def test_an_empty_folder_restores_nothing(tmp_path: Path) -> None:
    assert restored(tmp_path / "new")[0] is None


def test_a_foreign_folder_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "step-1-00000000").mkdir()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="Nothing was changed"):
        Manager(tmp_path, handle_sigterm=False)
    with pytest.raises(InputError, match=r"a folder without checkpoints\.json of ours"):
        prune(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1-00000000", "thesis.tex"]


def test_a_file_that_is_lost_while_it_is_read_is_no_matter_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer has gone: starting again may help, another model does not."""
    saved(tmp_path, 1)
    opened = NearestFiles.open

    def lose(self: NearestFiles, name: str) -> BinaryIO:
        if name.endswith(".distcp"):
            raise UnavailableError("the peer has gone")
        return opened(self, name)

    monkeypatch.setattr(NearestFiles, "open", lose)
    with pytest.raises(UnavailableError, match=r"step-1-.*: the peer has gone"):
        restored(tmp_path)


def test_two_trainings_cannot_write_to_one_folder(tmp_path: Path) -> None:
    with (
        manager_in(tmp_path),
        pytest.raises(UsageError, match=f"process {os.getpid()} on .*nobody else writes"),
    ):
        Manager(tmp_path, handle_sigterm=False)
    saved(tmp_path, 1)


def test_two_trainings_cannot_share_a_nodes_folder(tmp_path: Path) -> None:
    """Each has storage of its own; the second takes nothing with it."""
    local = LocalTier(tmp_path / "node", every_steps=1, replicas=0)
    with manager_in(tmp_path / "a", local=local) as manager:
        manager.save(1, state_at(1))
        for storage in ("a", "b"):
            with pytest.raises((InputError, UsageError)):
                Manager(tmp_path / storage, local=local, handle_sigterm=False)
        manager.save(2, state_at(2))
    assert [one.step for one in list_checkpoints(tmp_path / "node")] == [2, 1]
    with manager_in(tmp_path / "a", local=local) as manager:
        assert manager.restore(state_at(0)) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_on_a_node_is_read_from_storage(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The same step, bit for bit; without storage it would be the one before."""
    local = LocalTier(tmp_path / "node", every_steps=1, replicas=0)
    saved(tmp_path / "storage", 1, 2, local=local)
    newest = list_checkpoints(tmp_path / "node")[0].path
    damage(newest)
    state = state_at(0)
    with manager_in(tmp_path / "storage", local=local) as manager:
        assert manager.restore(state) == 2
        assert manager.restored is not None
        assert "persistent" in manager.restored.read.files
    assert torch.equal(state["weights"], state_at(2)["weights"])


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """And the training goes on: the next save, with room again, is committed."""
    with manager_in(tmp_path) as manager:
        assert manager.save(1, state_at(1)) is not None
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
        try:
            assert manager.save(2, state_at(2)) is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [one.step for one in list_checkpoints(tmp_path)] == [1]
        assert manager.save(3, state_at(3)) is not None
    assert restored(tmp_path)[0] == 3


def test_only_the_newest_are_kept_and_what_killed_saves_left_is_deleted(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, keep=2)
    assert [one.step for one in list_checkpoints(tmp_path)] == [3, 2]
    (tmp_path / ".saving-step-9-00000000").mkdir()
    (tmp_path / ".removing-step-1-00000000").mkdir()
    saved(tmp_path)
    assert not list(tmp_path.glob(".*ing-*"))


def test_what_was_just_saved_is_kept_although_an_older_one_has_a_later_step(
    tmp_path: Path,
) -> None:
    """As after a return to an earlier step, or where a node alone has a save that was killed."""
    saved(tmp_path, 20)
    saved(tmp_path, 16, 17, keep=2)
    assert [one.step for one in list_checkpoints(tmp_path)] == [17, 16]


def test_a_clock_that_was_set_back_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    saved(tmp_path, 2, keep=1)
    assert restored(tmp_path)[0] == 2


def test_an_incomplete_one_does_not_count_as_kept(tmp_path: Path) -> None:
    """Else pruning would delete the last that can be restored."""
    paths = saved(tmp_path, 1, 2, 3, keep=3)
    truncate(paths[2])
    assert [one.step for one in prune(tmp_path, 2)] == []
    assert [one.step for one in prune(tmp_path, 1)] == [1]
    assert restored(tmp_path)[0] == 2


def test_ranks_share_the_reading_of_hashes(tmp_path: Path) -> None:
    """Each file is read by one of them."""
    (path,) = saved(tmp_path, 1)
    flip_a_bit(path)
    (checkpoint,) = list_checkpoints(tmp_path)
    problems = [verify(checkpoint, part, 2) for part in range(2)]
    assert sorted(problems) == ["", "__0_0.distcp differs from what was written"]
