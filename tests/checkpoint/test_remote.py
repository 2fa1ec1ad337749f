"""Persistent storage behind a URL; fsspec's memory stands for an object store."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch

from otel_straggler.checkpoint import LocalTier, Manager
from otel_straggler.checkpoint.files import folder_of, is_remote
from otel_straggler.checkpoint.folder import MANIFEST, list_checkpoints, verify
from otel_straggler.cli import main
from otel_straggler.errors import ConfigError, InputError, UnavailableError

from .states import manager_in, state_at

pytest.importorskip("upath", reason="would show checkpoints behind URLs; needs universal-pathlib")


@pytest.fixture
def url() -> str:
    return f"memory://bucket/{uuid.uuid4().hex}"


def manager_at(url: Any, node: Path, **options: Any) -> Any:
    return manager_in(url, local=LocalTier(node, every_steps=1, replicas=0), **options)


def saved(url: str, node: Path, *steps: int, **options: Any) -> None:
    with manager_at(url, node, **options) as manager:
        for step in steps:
            assert manager.save(step, state_at(step)) is not None


def restored(url: str, node: Path) -> int | None:
    state = state_at(0)
    with manager_at(url, node) as manager:
        step: int | None = manager.restore(state)
    assert torch.equal(state["weights"], state_at(step or 0)["weights"])
    return step


def test_a_new_node_restores_from_the_store(url: str, tmp_path: Path) -> None:
    saved(url, tmp_path / "node", 1, 2)
    state = state_at(0)
    with manager_at(url, tmp_path / "new node") as manager:
        assert manager.restore(state) == 2
        assert set(manager.restored.read.files) == {"persistent"}
    assert state["position"] == {"epoch": 2}


def test_retention_and_hashes_are_as_on_a_disk(url: str, tmp_path: Path) -> None:
    saved(url, tmp_path / "node", 1, 2, 3, keep=2)
    listed = list_checkpoints(folder_of(url))
    assert [(one.step, one.problem, verify(one)) for one in listed] == [(3, "", ""), (2, "", "")]


def test_damage_in_the_store_is_found_and_the_one_before_restored(url: str, tmp_path: Path) -> None:
    saved(url, tmp_path / "node", 1, 2)
    newest = list_checkpoints(folder_of(url))[0].path
    shard = next(path for path in newest.iterdir() if path.name.endswith(".distcp"))
    shard.write_bytes(bytes(shard.stat().st_size))
    assert restored(url, tmp_path / "new node") == 1
    assert restored(url, tmp_path / "node") == 2, "the node has its own copy"


def test_what_a_killed_copy_left_is_no_checkpoint_and_is_deleted(url: str, tmp_path: Path) -> None:
    """The manifest is written last."""
    saved(url, tmp_path / "node", 1, 2)
    newest = list_checkpoints(folder_of(url))[0].path
    (newest / MANIFEST).unlink()
    assert restored(url, tmp_path / "new node") == 1
    assert [one.step for one in list_checkpoints(folder_of(url))] == [1]


def test_a_second_training_takes_the_store_over(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And never are there two that write."""
    with manager_at(url, tmp_path / "node") as first:
        assert first.save(1, state_at(1)) is not None
        with manager_at(url, tmp_path / "other node") as second:
            assert second.save(2, state_at(2)) is not None
            first.save(3, state_at(3))
    assert "expected a folder that nobody else writes to" in caplog.text
    assert [one.step for one in list_checkpoints(folder_of(url))] == [2, 1]


def test_a_foreign_store_is_refused_and_unchanged(url: str, tmp_path: Path) -> None:
    folder = folder_of(url)
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="Nothing was changed"):
        Manager(url, local=LocalTier(tmp_path, every_steps=1), handle_sigterm=False)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_url_needs_a_local_tier(url: str) -> None:
    with pytest.raises(ConfigError, match="expected a path, or local= too"):
        Manager(url, handle_sigterm=False)


def test_a_url_of_an_unknown_kind_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(UnavailableError, match=r"otel-straggler\[remote\]"):
        folder_of("nosuchstore://bucket/run")
    assert not is_remote(folder_of("some/path"))


def test_the_commands_take_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file URL: the commands are in another process in life."""
    url = f"file://{tmp_path}/store"
    saved(url, tmp_path / "node", 1, 2, 3, keep=3)
    assert main(["checkpoints", "verify", url]) == 0
    assert main(["checkpoints", "prune", url, "--keep", "1"]) == 0
    assert main(["checkpoints", "list", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("step 3  ")
    os.truncate(next((tmp_path / "store").glob("*/*.distcp")), 3)
    assert main(["checkpoints", "verify", url]) == 1
