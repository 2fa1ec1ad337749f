"""Who may have written a checkpoint: signed manifests, and folders that others can change."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint import LocalTier, Manager
from otel_straggler.checkpoint.folder import MANIFEST, list_checkpoints
from otel_straggler.checkpoint.trust import check_private
from otel_straggler.cli import main
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.semconv import CHECKPOINT_KEY_FILE

from . import forging
from .states import manager_in, saved, state_at

OLD, NEW, OTHER = "0" * 32, "1" * 64, "2" * 32


def key_file(path: Path, *keys: str) -> Path:
    path.write_text("".join(f"{key}\n" for key in keys))
    path.chmod(0o600)
    return path


def restored(folder: Path, **options: Any) -> int | None:
    with manager_in(folder, **options) as manager:
        return manager.restore(state_at(0))


def test_a_signed_checkpoint_is_restored_with_the_key_and_without(tmp_path: Path) -> None:
    key = key_file(tmp_path / "key", NEW)
    saved(tmp_path / "c", 1, manifest_key_file=key)
    assert restored(tmp_path / "c", manifest_key_file=key) == 1
    assert restored(tmp_path / "c") == 1


FORGERIES: dict[str, Callable[[Path], object]] = {
    "other files, with hashes that are right": lambda path: forging.with_object(
        path, "position.epoch", forging.torch_saved(666)
    ),
    "another reason": lambda path: forging.edited_manifest(path, reason="request"),
    "another time": lambda path: forging.edited_manifest(path, created_at_unix_s=9e9),
    "no class that it needs": lambda path: forging.edited_manifest(path, needs={"a": "b"}),
    "a signature of nothing": lambda path: forging.edited_manifest(path, hmac_sha256=""),
    "a signature that is no text": lambda path: forging.edited_manifest(path, hmac_sha256=[1]),
    "a signature of another alphabet": lambda path: forging.edited_manifest(path, hmac_sha256="ä"),
    "no signature": lambda path: forging.edited_manifest(path, hmac_sha256=None),
    "that of the one before": lambda path: forging.edited_manifest(
        path, hmac_sha256=signature_of(path.parent / before(path))
    ),
    "the one before under its name": lambda path: (path / MANIFEST).write_bytes(
        (path.parent / before(path) / MANIFEST).read_bytes()
    ),
}


def before(path: Path) -> str:
    return next(each.name for each in path.parent.glob("step-1-*"))


def signature_of(path: Path) -> Any:
    return json.loads((path / MANIFEST).read_bytes())["hmac_sha256"]


@pytest.mark.parametrize("kind", FORGERIES)
def test_what_somebody_without_the_key_has_changed_is_not_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The one before is, and the log names the other."""
    key = key_file(tmp_path / "key", NEW)
    _, newest = saved(tmp_path / "c", 1, 2, manifest_key_file=key)
    FORGERIES[kind](newest)
    with caplog.at_level(logging.WARNING):
        assert restored(tmp_path / "c", manifest_key_file=key) == 1
    assert f"{newest} is not restored from there: {MANIFEST} is" in caplog.text


def test_a_folder_without_any_signature_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    """A training that began with no key does not begin at zero with one; it says what to do."""
    key = key_file(tmp_path / "key", NEW)
    [path] = saved(tmp_path / "c", 1)
    with pytest.raises(InputError) as refusal:
        restored(tmp_path / "c", manifest_key_file=key)
    assert f"nothing is restored. {path}: {MANIFEST} is refused: it is not signed" in str(
        refusal.value
    )
    assert f"{key} has a key" in str(refusal.value)
    assert "To restore it once, leave the key out" in str(refusal.value)


def test_a_key_is_replaced_in_two_steps(tmp_path: Path) -> None:
    """The first line signs, both are accepted; afterwards the old one is not."""
    folder, key = tmp_path / "c", tmp_path / "key"
    saved(folder, 1, manifest_key_file=key_file(key, OLD))
    both = key_file(key, NEW, OLD)
    assert restored(folder, manifest_key_file=both) == 1
    saved(folder, 2, manifest_key_file=both)
    new = key_file(key, NEW)
    assert restored(folder, manifest_key_file=new) == 2
    with pytest.raises(InputError, match="put that key into the second line"):
        restored(folder, manifest_key_file=key_file(key, OTHER))


def test_unsigned_checkpoints_push_no_signed_one_out(tmp_path: Path) -> None:
    """Newer ones of somebody else, as many as are kept, delete nothing."""
    folder, key = tmp_path / "c", key_file(tmp_path / "key", NEW)
    with manager_in(folder, keep=2, manifest_key_file=key) as manager:
        manager.save(1, state_at(1))
        for step in (7, 8, 9):
            copy = forging.copied(next(folder.glob("step-1-*")), tmp_path / f"copy-{step}")
            forging.edited_manifest(copy, step=step, created_at_unix_s=9e9, hmac_sha256=None)
            copy.rename(folder / f"step-{step}-0000000{step}")
        manager.save(2, state_at(2))
    signed = [
        one.step for one in list_checkpoints(folder, manager._members.trust.keys) if not one.problem
    ]
    assert signed == [2, 1]
    assert restored(folder, manifest_key_file=key) == 2


def test_the_commands_know_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the variable that the manager knows: verify says what is not signed."""
    folder, key = tmp_path / "c", key_file(tmp_path / "key", NEW)
    saved(folder, 1)
    assert main(["checkpoints", "verify", str(folder)]) == 0
    monkeypatch.setenv(CHECKPOINT_KEY_FILE, str(key))
    saved(folder, 2)
    capsys.readouterr()
    assert main(["checkpoints", "verify", str(folder)]) == 1
    newest, oldest = capsys.readouterr().out.splitlines()
    assert "step 2" in newest
    assert "complete" in newest
    assert "step 1" in oldest
    assert "NOT COMPLETE: manifest.json is refused: it is not signed" in oldest


def test_copies_on_nodes_and_in_storage_are_signed(tmp_path: Path) -> None:
    folder, node, key = tmp_path / "c", tmp_path / "node", key_file(tmp_path / "key", NEW)
    local = LocalTier(node, every_steps=1, replicas=0)
    with manager_in(folder, local=local, manifest_key_file=key) as manager:
        assert manager.save(3, state_at(3)) is not None
    for each in (folder, node):
        [one] = list_checkpoints(each, manager._members.trust.keys)
        assert one.problem == ""


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "others read it": (lambda path: path.chmod(0o640), "'; expected mode 0600"),
    "all read it": (lambda path: path.chmod(0o604), r"mode 0604"),
    "it is missing": (lambda path: path.unlink(), "No such file"),
    "it is a folder": (lambda path: (path.unlink(), path.mkdir()), "is a directory"),
    "it is a link": (
        lambda path: path.symlink_to(path.rename(path.with_name("moved"))), "is a symbolic link",
    ),
    "it is a pipe": (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "is a pipe"),
    "it is empty": (lambda path: path.write_text("\n\n"), "no line"),
    "a key is short": (lambda path: path.write_text("secret\n"), "1 lines of 6 bytes"),
    "there are three": (lambda path: path.write_text(f"{OLD}\n" * 3), "3 lines"),
    "it is large": (lambda path: path.write_text("a" * 5_000), "more than 4,096 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_key_file_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str
) -> None:
    """And never shown."""
    key = key_file(tmp_path / "key", NEW)
    damage, expected = BAD_FILES[kind]
    damage(key)
    with pytest.raises(ConfigError, match=expected) as refusal:
        Manager(tmp_path / "c", manifest_key_file=key, handle_sigterm=False)
    assert not (tmp_path / "c").exists()
    assert NEW not in str(refusal.value)
    assert "secret" not in str(refusal.value).replace(str(key), "")


def test_keys_are_not_printed(tmp_path: Path) -> None:
    with manager_in(tmp_path / "c", manifest_key_file=key_file(tmp_path / "key", NEW)) as manager:
        assert NEW not in repr(manager._members)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before_it = os.umask(0o022)
    yield os.umask
    os.umask(before_it)


OTHERS: dict[str, Callable[[Path, Path], object]] = {
    "the group writes to the folder": lambda folder, _: folder.chmod(0o770),
    "all write to the folder": lambda folder, _: folder.chmod(0o707),
    "as in /tmp": lambda folder, _: folder.chmod(0o1777),
    "the group writes to a checkpoint": lambda folder, one: (
        folder.chmod(0o755), one.chmod(0o775),
    ),
    "the group writes to a file": lambda folder, one: (
        folder.chmod(0o755), one.chmod(0o755), (one / ".metadata").chmod(0o664),
    ),
    "all write to a manifest": lambda folder, one: (
        folder.chmod(0o711), one.chmod(0o755), (one / MANIFEST).chmod(0o646),
    ),
    "all write to the marker": lambda folder, _: (
        folder.chmod(0o755), (folder / "checkpoints.json").chmod(0o666),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_a_folder_that_others_can_change_is_refused_unless_it_is_trusted(
    tmp_path: Path, kind: str
) -> None:
    """The sentence has path, mode and owner, and the two ways out, both of which work."""
    folder = tmp_path / "c"
    [newest] = saved(folder, 1)
    OTHERS[kind](folder, newest)
    with pytest.raises(InputError) as refusal:
        Manager(folder, handle_sigterm=False)
    sentence = str(refusal.value)
    assert f"of user {os.geteuid()}, group {os.getegid()}" in sentence
    assert f"chmod -R go-w {folder}" in sentence
    assert "Manager(..., trust_folder=True)" in sentence
    assert restored(folder, trust_folder=True) == 1
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o022)
    assert restored(folder) == 1


def test_what_is_above_the_folder_and_where_others_do_not_get_to_is_not_looked_at(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "shared" / "c"
    folder.parent.mkdir()
    [newest] = saved(folder, 1)
    folder.parent.chmod(0o777)
    newest.chmod(0o777)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert restored(folder) == 1


@pytest.mark.parametrize(("trusts", "expected"), [(False, 0o700), (True, 0o775)])
def test_new_folders_are_this_users_alone_or_as_the_umask_has_it(
    tmp_path: Path, umask: Callable[[int], int], trusts: bool, expected: int
) -> None:
    """With the umask of a cluster whose users have groups."""
    umask(0o002)
    folder, node = tmp_path / "c", tmp_path / "node"
    local = LocalTier(node, every_steps=1, replicas=0)
    with manager_in(folder, local=local, trust_folder=trusts) as manager:
        manager.save(1, state_at(1))
        assert manager.restore(state_at(0)) == 1
    made = [folder, node, *folder.glob("step-*"), *node.glob("step-*")]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [expected] * 4


def test_a_nodes_folder_is_looked_at_too(tmp_path: Path) -> None:
    node = tmp_path / "node"
    saved(node, 1)
    node.chmod(0o777)
    (node / "checkpoints.json").unlink()
    for each in node.glob("step-*"):
        each.rename(tmp_path / each.name)
    (node / "lock").unlink()
    with pytest.raises(InputError, match="mode 0777"):
        Manager(tmp_path / "c", local=LocalTier(node, every_steps=1), handle_sigterm=False)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that user can change it; root has to be trusted, and may read anybody's."""
    saved(tmp_path / "c", 1)
    if os.geteuid() == 0:
        os.chown(tmp_path / "c", 1_234, -1)
        assert restored(tmp_path / "c") == 1
    owner = (tmp_path / "c").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(InputError, match=f"mode 0700 of user {owner}, "):
        check_private(tmp_path / "c")
