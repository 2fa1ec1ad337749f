"""A manifest that is anything at all costs one checkpoint: the one before is restored, and a line
names the bad one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_straggler.checkpoint.folder import (
    MANIFEST,
    MARKER,
    list_checkpoints,
    prune,
)
from otel_straggler.checkpoint.manifest import decode_manifest
from otel_straggler.errors import InputError

from ..damage import damaged
from .states import restored, saved

DIGITS = "9" * 5_000
Damage = Callable[[Path], object]


def content(text: str | bytes) -> Damage:
    encoded = text if isinstance(text, bytes) else text.encode()
    return lambda path: path.write_bytes(encoded)


def signed(change: Callable[[dict[str, Any]], object]) -> Damage:
    """As of somebody who can compute a hash, or of another version of ours."""

    def damage(path: Path) -> None:
        values = json.loads(path.read_bytes())
        del values["sha256"]
        change(values)
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({**values, "sha256": digest}))

    return damage


def put(name: str, value: object) -> Damage:
    return signed(lambda values: values.update({name: value}))


def entry(name: str, value: object) -> Damage:
    return signed(lambda values: values["files"][".metadata"].update({name: value}))


def file_named(name: str) -> Damage:
    return signed(lambda v: v["files"].update({name: v["files"][".metadata"]}))


def instead(make: Callable[[Path], object]) -> Damage:
    """Something else under the name."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def of_folder(make: Callable[[Path], object]) -> Damage:
    """The checkpoint's folder is moved away, and something else has its name."""

    def damage(path: Path) -> None:
        path.parent.rename(path.parent.parent / "moved")
        make(path.parent)

    return damage


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a path of at most 107 bytes
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def sparse(path: Path) -> None:
    os.truncate(path, 1 << 40)


def twice(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace('"reason":', '"reason": "call", "reason":', 1))


BAD: dict[str, Damage] = {
    "empty": content(""),
    "zeros": content(bytes(4_096)),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "no JSON": content("step 2 is complete"),
    "null": content("null"),
    "a list": content("[]"),
    "a text": content('"manifest"'),
    "a number": content("2"),
    "an empty object": content("{}"),
    "nested lists": content("[" * 100_000),
    "nested objects": content('{"a":' * 100_000 + "1" + "}" * 100_000),
    "a nesting of 500": content("[" * 500 + "]" * 500),
    "5,000 digits": content(f'{{"step": {DIGITS}}}'),
    "5,000 digits, signed": content(f'{{"sha256": "", "version": {DIGITS}}}'),
    "NaN": content('{"sha256": NaN}'),
    "Infinity": content('{"step": Infinity, "sha256": ""}'),
    "a number of 1e999": content('{"step": 1e999, "sha256": ""}'),
    "a key twice": twice,
    "not UTF-8": content(b'{"sha256": "\xff"}'),
    "UTF-16": lambda path: path.write_text(path.read_text(), encoding="utf-16"),
    "a byte order mark": lambda path: path.write_text(path.read_text(), encoding="utf-8-sig"),
    "a pipe": instead(os.mkfifo),
    "a socket": instead(bound),
    "a directory": instead(Path.mkdir),
    "a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "a terminal": instead(lambda path: path.symlink_to("/dev/tty")),
    "a link to nothing": instead(lambda path: path.symlink_to("nothing")),
    "a link to itself": instead(lambda path: path.symlink_to(path.name)),
    "a link to a good one": lambda path: (
        path.rename(path.with_name("m")).parent.joinpath(MANIFEST).symlink_to("m")
    ),
    "a terabyte": sparse,
    "none": Path.unlink,
    "no folder, a file": of_folder(Path.touch),
    "no folder, a pipe": of_folder(os.mkfifo),
    "no folder, a link to itself": of_folder(lambda path: path.symlink_to(path.name)),
    "no folder, a link to another": of_folder(lambda path: path.symlink_to("moved")),
    "another version": put("version", 2),
    "a version of text": put("version", "1"),
    "no version": signed(lambda values: values.pop("version")),
    "no hash of its own": lambda path: path.write_text(
        json.dumps({k: v for k, v in json.loads(path.read_bytes()).items() if k != "sha256"})
    ),
    "no step": signed(lambda values: values.pop("step")),
    "the step of another": put("step", 7),
    "a step of text": put("step", "2"),
    "a step that is true": put("step", True),
    "a negative step": put("step", -2),
    "a step of 19 digits": put("step", 10**19),
    "no ranks": put("world_size", 0),
    "a negative order": put("order", -1),
    "a time of text": put("created_at_unix_s", "now"),
    "a time of a null": put("created_at_unix_s", None),
    "a reason that is a number": put("reason", 5),
    "phases that are a list": put("phases_s", [1]),
    "phases that are negative": put("phases_s", {"0": {"write": -1.0}}),
    "phases that are text": put("phases_s", {"0": {"write": "long"}}),
    "no files": put("files", {}),
    "files that are a list": put("files", [".metadata"]),
    "files that are null": put("files", None),
    "a file that is a number": signed(lambda values: values["files"].update({"a": 5})),
    "a file without a hash": signed(lambda values: values["files"][".metadata"].pop("sha256")),
    "a hash that is a number": entry("sha256", 5),
    "a hash of other letters": entry("sha256", "z" * 64),
    "a negative size": entry("size_bytes", -1),
    "a size that is true": entry("size_bytes", True),
    "a size of a fraction": entry("size_bytes", 1.5),
    "a file above": file_named("../manifest.json"),
    "a file anywhere": file_named("/etc/passwd"),
    "the folder above": file_named(".."),
    "a name with a zero byte": file_named("a\0b"),
    "a name of half a character": file_named("\ud800"),
    "a name of a line break": file_named("a\nWARNING all is well"),
    "a name of a megabyte": file_named("a" * (1 << 20)),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", BAD.values(), ids=BAD)
def test_a_bad_manifest_costs_one_checkpoint_and_is_named_in_one_line(
    tmp_path: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    _, newest = saved(tmp_path, 1, 2)
    damage(newest / MANIFEST)
    caplog.clear()
    assert restored(tmp_path)[0] == 1
    named = [each for each in caplog.messages if newest.name in each]
    assert len(named) == 1
    assert "\n" not in named[0]
    assert len(named[0]) < 1_000


@pytest.mark.parametrize("damage", [BAD["a pipe"], BAD["nested lists"], BAD["a negative size"]])
def test_a_training_with_a_bad_manifest_goes_on_to_save_and_prune(
    tmp_path: Path, damage: Damage
) -> None:
    _, newest = saved(tmp_path, 1, 2)
    damage(newest / MANIFEST)
    saved(tmp_path, 3, 4)
    assert [one.step for one in list_checkpoints(tmp_path)] == [4, 3]


@pytest.mark.parametrize("below", [1, 2, 3])
def test_the_highest_order_of_all_does_not_make_what_is_saved_next_unreadable(
    tmp_path: Path, below: int
) -> None:
    _, newest = saved(tmp_path, 1, 2)
    put("order", (1 << 62) - below)(newest / MANIFEST)
    assert restored(tmp_path)[0] == 2
    saved(tmp_path, 3, 4, 5)
    assert [one.problem for one in list_checkpoints(tmp_path)] == ["", ""]
    assert restored(tmp_path)[0] == 5


MARKERS: dict[str, Damage] = {
    name: BAD[name]
    for name in ("empty", "null", "nested lists", "5,000 digits", "NaN", "a pipe",
                 "a socket", "a directory", "a device", "a link to itself", "a terabyte")
}  # fmt: skip
for text in ('"long"', "1e999", "NaN", "-1", "null"):
    MARKERS[f"a history of {text}"] = content(
        '{"format": "otel-straggler checkpoints", "version": 1, "run": "r", '
        f'"history": {{"attempts": 0, "clean_ends": 0, "run_s": {text}}}}}'
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", MARKERS.values(), ids=MARKERS)
def test_a_folder_with_a_bad_marker_is_refused_with_a_sentence_and_unchanged(
    tmp_path: Path, damage: Damage
) -> None:
    saved(tmp_path, 1)
    damage(tmp_path / MARKER)
    before = sorted(each.name for each in tmp_path.iterdir())
    with pytest.raises(InputError, match=r"checkpoints\.json.* Nothing was changed"):
        restored(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == before


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A manifest, and its content."""
    path = saved(tmp_path_factory.mktemp("fuzz"), 1, 2)[-1] / MANIFEST
    return path, path.read_bytes()


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_manifest_is_what_was_written_or_a_problem(
    newest: tuple[Path, bytes], data: st.DataObject
) -> None:
    """`make fuzz` tries 20,000 of them."""
    path, whole = newest
    content = data.draw(damaged([whole]))
    path.write_bytes(content)
    (one,) = (each for each in list_checkpoints(path.parents[1]) if each.step == 2)
    assert one.problem or one.manifest == decode_manifest(whole)
    assert "\n" not in one.problem


CLOCKS = {
    "set back by an hour": [1e9, 1e9 - 3_600, 1e9 - 3_599, 1e9 - 3_598],
    "set ahead by a year and back": [1e9 + 3e7, 1e9 + 1, 1e9 + 2, 1e9 + 3],
    "at the beginning of time": [1e9, 0.0, 0.0, 0.0],
    "standing still": [1e9] * 4,
    "going backwards": [1e9, 1e9 - 1, 1e9 - 2, 1e9 - 3],
    "jumping": [1e9, 5e9, 2.0, 3e9],
}


@pytest.mark.parametrize("times", CLOCKS.values(), ids=CLOCKS)
def test_the_clock_does_not_choose_what_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[float]
) -> None:
    """Those that were saved last are kept, whatever time it was."""
    for step, now_s in enumerate(times, 1):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda now_s=now_s: now_s)
            saved(tmp_path, step, keep=2)
    assert [one.step for one in list_checkpoints(tmp_path)] == [4, 3]


def test_a_clock_ahead_does_not_delete_what_a_return_to_an_earlier_step_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: 9e9)
        saved(tmp_path, 20)
    saved(tmp_path, 16, 17, keep=2)
    assert [one.step for one in list_checkpoints(tmp_path)] == [17, 16]


def test_files_of_a_checkpoint_that_were_touched_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a copy without times, or by a clock of the file server."""
    caplog.set_level(logging.INFO)
    paths = saved(tmp_path, 1, 2, 3, keep=3)
    for number, path in enumerate(reversed(paths)):
        for each in (*path.iterdir(), path):
            os.utime(each, (number, number))
    assert [one.step for one in prune(tmp_path, 2)] == [1]
