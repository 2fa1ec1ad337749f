"""``otel-straggler checkpoints``."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from otel_straggler.checkpoint.folder import MANIFEST, locked
from otel_straggler.checkpoint.manifest import FileEntry, decode_manifest, encode_manifest
from otel_straggler.cli import main

from .states import saved


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    exit_code = main(["checkpoints", *arguments])
    output = capsys.readouterr()
    return exit_code, output.out + output.err


def test_listing_names_steps_sizes_and_what_is_not_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, newest = saved(tmp_path, 1, 2)
    os.truncate(next(newest.glob("*.distcp")), 10)
    exit_code, output = run(capsys, "list", str(tmp_path))
    first, second = output.splitlines()
    assert exit_code == 0
    assert "step 2" in first
    assert "NOT COMPLETE: __0_0.distcp has 10 bytes, not " in first
    assert second.endswith("of 1 rank  call  complete")


def test_verifying_finds_what_listing_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte; a script reads it from the exit code."""
    _, newest = saved(tmp_path, 1, 2)
    assert run(capsys, "verify", str(tmp_path))[0] == 0
    shard = next(newest.glob("*.distcp"))
    shard.write_bytes(bytes(shard.stat().st_size))
    exit_code, output = run(capsys, "verify", str(tmp_path), "--json")
    assert exit_code == 1
    listed = json.loads(output)["checkpoints"]
    assert [(one["step"], one["is_complete"]) for one in listed] == [(2, False), (1, True)]
    assert run(capsys, "verify", str(tmp_path), "--step", "1")[0] == 0


def test_a_nodes_folder_says_what_is_only_on_other_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is complete with what the node should have, and verifying reads that alone."""
    (path,) = saved(tmp_path, 1)
    manifest = decode_manifest((path / MANIFEST).read_bytes())
    others = {f"__{rank}_0.distcp": FileEntry(size_bytes=9, sha256="0" * 64) for rank in (1, 2)}
    (path / MANIFEST).write_bytes(encode_manifest(replace(manifest, elsewhere=others)))
    assert run(capsys, "verify", str(tmp_path))[0] == 0
    assert "MB in 2 files (2 on other nodes) of 1 rank" in run(capsys, "list", str(tmp_path))[1]
    listed = json.loads(run(capsys, "list", str(tmp_path), "--json")[1])["checkpoints"]
    assert [(one["files"], one["files_on_other_nodes"]) for one in listed] == [(2, 2)]


def test_pruning_keeps_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, 1, 2, 3, keep=3)
    exit_code, output = run(capsys, "prune", str(tmp_path), "--keep", "1", "--json")
    assert exit_code == 0
    assert [one["step"] for one in json.loads(output)["deleted"]] == [2, 1]


def test_pruning_waits_for_nobody_who_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, 1, 2)
    with locked(tmp_path):
        exit_code, output = run(capsys, "prune", str(tmp_path), "--keep", "1")
    assert exit_code == 2
    assert "a folder that nobody else writes to" in output


@pytest.mark.parametrize("verb", [["list"], ["verify"], ["prune", "--keep", "1"]])
def test_a_folder_of_other_things_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    exit_code, output = run(capsys, verb[0], str(tmp_path), *verb[1:])
    assert exit_code == 2
    assert "expected a folder of checkpoints" in output
