"""``otel-straggler checkpoints``: list, verify, and prune a folder of checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from otel_straggler.checkpoint.files import folder_of, is_remote
from otel_straggler.checkpoint.folder import (
    Checkpoint,
    list_checkpoints,
    locked,
    prune,
    remove_leftovers,
    verify,
)
from otel_straggler.checkpoint.trust import ManifestKeys
from otel_straggler.cli.text import clock, many, print_json, printable

_NOT_WHOLE = 1
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_FOLDER = click.argument("folder", metavar="DIR")
_KEYS = click.option(
    "--manifest-key-file",
    "key_file",
    metavar="FILE",
    help="Keys of manifests, as the manager has them [default: $OTEL_STRAGGLER_CHECKPOINT_KEY_FILE]"
    ": what neither has signed is not complete.",
)


@click.group()
def command() -> None:
    """List, verify, and prune checkpoints of otel_straggler.checkpoint.Manager.

    DIR is its persistent folder, also a URL, or the local one of a node: what is only on other
    nodes is counted, and not read.
    """


@command.command("list")
@_FOLDER
@_JSON
@_KEYS
def list_command(folder: str, as_json: bool, key_file: str | None) -> None:
    """List the checkpoints in DIR, newest first, and whether each is complete.

    Sizes are compared with the manifest; verify reads the files, too.
    """
    _print(list_checkpoints(folder_of(folder), ManifestKeys.of(key_file)), as_json)


@command.command("verify")
@_FOLDER
@_JSON
@_KEYS
@click.option("--step", type=int, metavar="N", help="Only the checkpoint of this step.")
def verify_command(folder: str, as_json: bool, key_file: str | None, step: int | None) -> int:
    """Read all files of the checkpoints in DIR and compare their hashes.

    The exit code is 0 if all are whole, 1 if one is not, or there is none, 2 if DIR is no folder of
    checkpoints.
    """
    found = list_checkpoints(folder_of(folder), ManifestKeys.of(key_file))
    listed = [one for one in found if step in {None, one.step}]
    verified = [replace(one, problem=verify(one)) for one in listed]
    _print(verified, as_json)
    return _NOT_WHOLE if not verified or any(one.problem for one in verified) else 0


@command.command("prune")
@_FOLDER
@_JSON
@_KEYS
@click.option(
    "--keep",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="Complete checkpoints that stay.",
)
def prune_command(folder: str, as_json: bool, key_file: str | None, keep: int) -> None:
    """Delete all but the newest N complete checkpoints in DIR, and what killed saves left there.

    With fewer than N complete ones, none is deleted. The exit code is 2 if a training uses DIR; a
    URL has no lock, and what killed saves left there stays until the next training.
    """
    path, keys = folder_of(folder), ManifestKeys.of(key_file)
    list_checkpoints(path)
    if is_remote(path):
        removed = prune(path, keep, keys=keys)
    else:
        with locked(path):
            remove_leftovers(path)
            removed = prune(path, keep, keys=keys)
    _print(removed, as_json, what="deleted")


def _print(listed: list[Checkpoint], as_json: bool, what: str = "checkpoints") -> None:
    if as_json:
        print_json({"schema_version": 1, what: list(map(_json, listed))})
        return
    for line in map(_line, listed) if listed else [f"no checkpoints{_verb(what)}"]:
        click.echo(line)


def _verb(what: str) -> str:
    return " to delete" if what == "deleted" else ""


def _line(one: Checkpoint) -> str:
    state = f"NOT COMPLETE: {printable(one.problem, 300)}" if one.problem else "complete"
    if one.manifest is None:
        return f"step {one.step}  {one.path.name}  {state}"
    its = one.manifest
    others = f" ({len(its.elsewhere)} on other nodes)" if its.elsewhere else ""
    return (
        f"step {one.step}  {one.path.name}  {clock(its.created_at_unix_s)}  "
        f"{its.size_bytes / 1e6:,.1f} MB in {many(len(its.files), 'file')}{others} of "
        f"{many(its.world_size, 'rank')}  {printable(its.reason)}  {state}"
    )


def _json(one: Checkpoint) -> dict[str, Any]:
    its = one.manifest
    facts: dict[str, Any] = {
        "step": one.step,
        "path": str(one.path),
        "is_complete": not one.problem,
        "problem": one.problem,
    }
    if its is not None:
        facts |= {
            "created_at_unix_s": its.created_at_unix_s,
            "reason": its.reason,
            "world_size": its.world_size,
            "files": len(its.files),
            "files_on_other_nodes": len(its.elsewhere),
            "size_bytes": its.size_bytes,
            "phases_s": its.phases_s,
        }
    return facts
