"""Attempts that bring no newer checkpoint are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_straggler.checkpoint.folder import commit, name_of, open_folder
from otel_straggler.checkpoint.manifest import FileEntry, Manifest
from otel_straggler.launcher.progress import Progress, newest_step


def test_attempts_without_a_newer_checkpoint_in_a_row_are_too_many_at_some_point(
    tmp_path: Path,
) -> None:
    """And one with a newer checkpoint begins the count again."""
    path = tmp_path / "latest_checkpointed_iteration.txt"
    progress = Progress(path=str(path), max_attempts=2, min_steps=100)
    answers = []
    for step in (300, 350, 400, 450, 499, 499):
        path.write_text(f"{step}\n")
        answers.append((progress.attempt_ended() != "", progress.attempts))
    assert answers == [(False, 0), (False, 1), (False, 0), (False, 1), (True, 2), (True, 3)]
    assert progress.attempt_ended().startswith(
        "4 attempts in a row have made no progress: the newest checkpoint is still that of step 400"
    )


@pytest.mark.parametrize("text", [None, "", "release"])
def test_a_step_that_is_not_known_is_no_reason_to_give_up(tmp_path: Path, text: str | None) -> None:
    """A wrong path must not end a training; Megatron writes `release` for a converted model."""
    path = tmp_path / "step"
    if text is not None:
        path.write_text(text)
    progress = Progress(path=str(path), max_attempts=1)
    assert [progress.attempt_ended() for _ in range(4)] == [""] * 4


def test_zero_attempts_are_never_too_many(tmp_path: Path) -> None:
    (tmp_path / "step").write_text("7")
    progress = Progress(path=str(tmp_path / "step"), max_attempts=0)
    assert not any(progress.attempt_ended() for _ in range(9))


def test_training_that_was_started_over_begins_the_count_again(tmp_path: Path) -> None:
    """Its checkpoints are older than what was there."""
    path = tmp_path / "step"
    progress = Progress(path=str(path), max_attempts=2)
    for step in (90, 90, 10, 10):
        path.write_text(str(step))
        assert progress.attempt_ended() == ""
    assert progress.attempts == 1


def test_the_newest_complete_checkpoint_of_a_folder_counts(tmp_path: Path) -> None:
    """One that is being written does not, and an empty folder is unknown."""
    assert newest_step(tmp_path) is None
    open_folder(tmp_path)
    assert newest_step(tmp_path) is None
    for step in (20, 100, 40):
        saving = tmp_path / f".saving-{name_of(step, 'save')}"
        saving.mkdir()
        files = {".metadata": FileEntry(size_bytes=0, sha256="0" * 64)}
        commit(saving, Manifest(step=step, world_size=1, created_at_unix_s=1.0, files=files))
    (tmp_path / name_of(120, "save")).mkdir()
    assert newest_step(tmp_path) == 100
