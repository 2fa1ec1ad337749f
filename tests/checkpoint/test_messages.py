"""What ranks leave for each other in the store is data of a known type, whoever has written it."""

from __future__ import annotations

import json
import os
import pickle
import time
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan

from otel_straggler.checkpoint import plain, saving
from otel_straggler.checkpoint.agreement import _Decided, _Request
from otel_straggler.checkpoint.dcp_files import FilePrefix
from otel_straggler.checkpoint.folder import Checkpoint
from otel_straggler.checkpoint.manifest import FileEntry, Manifest
from otel_straggler.checkpoint.membership import _content_or_error, _Opened
from otel_straggler.checkpoint.restoring import _Found, _Offer
from otel_straggler.checkpoint.sources import Candidate
from otel_straggler.checkpoint.store import Exchange, RankFailedError
from otel_straggler.checkpoint.streams import FileAddress
from otel_straggler.errors import UnavailableError

from .forging import touching

ENTRY = FileEntry(size_bytes=5, sha256="ab")
MANIFEST = Manifest(
    step=3, world_size=2, created_at_unix_s=1.5, files={"a": ENTRY}, phases_s={"0": {"write": 0.5}}
)
ADDRESS = FileAddress(hosts=("a", "b"), port=9, key=b"\0\xff" * 16)
CANDIDATE = Candidate(
    name="step-3-ab", step=3, created_at_unix_s=2.0, files={"a": ENTRY}, places={"a": (0, 1)}
)


def a_plan() -> SavePlan:
    planner = DefaultSavePlanner()
    state = {
        "w": torch.zeros(3, 4, dtype=torch.bfloat16), "of": [{"n": 1}, torch.ones(())], "x": None,
    }  # fmt: skip
    planner.set_up_planner(state, is_coordinator=True)
    plan = planner.create_local_plan()
    return replace(planner.create_global_plan([plan])[0][0], storage_data=FilePrefix("__0_"))


MESSAGES: list[tuple[Any, Any]] = [
    (a_plan(), SavePlan),
    (replace(a_plan(), storage_data=None, planner_data=None), SavePlan),
    ((MANIFEST, ADDRESS), tuple[Manifest, FileAddress]),
    (([Checkpoint(step=3, path=Path("/a"), manifest=MANIFEST)], ADDRESS), _Offer),
    (([], None), _Offer),
    (([CANDIDATE], {1: ADDRESS}, "why"), _Found),
    (("reason", 1.5, (0, 2)), _Request),
    ((7, (0, 1), True), _Decided),
    ([(1, "a", "differs")], list[tuple[int, str, str]]),
]


@pytest.mark.parametrize(("message", "kind"), MESSAGES)
def test_a_message_arrives_as_it_was_sent(message: Any, kind: Any) -> None:
    """Also sizes and types of torch, paths, keys, and numbers as names."""
    one, other = exchange(0), exchange(1)
    other._store = one._store
    one.send("name", message, to=1)
    found = other.receive("name", kind)
    assert found == message
    assert type(found) is type(message)


def test_every_field_of_dcps_plans_has_a_type() -> None:
    """A torch with a new field that is left open is noticed here."""
    [item, *_] = a_plan().items
    for kind in (
        SavePlan,
        saving.WriteResult,
        type(item),
        type(item.index),
        type(item.tensor_data),
    ):
        assert plain._reader(kind)
        assert [each.name for each in fields(kind)] == list(plain._names(kind))


def test_objects_are_not_sent() -> None:
    with pytest.raises(TypeError, match="a object cannot be sent to another rank"):
        exchange(1).send("name", object())


class Memory:
    """A store of this process."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self.content[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        return self.content[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.content for key in keys)

    def delete_key(self, key: str) -> None:
        del self.content[key]


def exchange(rank: int) -> Exchange:
    return Exchange(Memory(), rank, (0, 1), time.monotonic() + 5.0)


def packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode())


BOMB = zlib.compress(bytes(1 << 20), 9)
FORGED: dict[str, Callable[[Path], tuple[bytes, bytes]]] = {
    "a pickle": lambda marker: (b"1", zlib.compress(pickle.dumps(touching(marker)))),
    "a pickle that is not packed": lambda marker: (b"1", pickle.dumps(touching(marker))),
    "a name of a class": lambda _: (b"1", packed({"__class__": "os.system", "args": ["true"]})),
    "a text": lambda _: (b"1", packed("plan")),
    "a number": lambda _: (b"1", packed(7)),
    "too few fields": lambda _: (b"1", packed([[]])),
    "items that are none": lambda _: (b"1", packed([[1, 2], None, None, True])),
    "another type of torch": lambda _: (b"1", packed([[["save"]], None, None, True])),
    "nesting": lambda _: (b"1", zlib.compress(b"[" * 100_000)),
    "digits": lambda _: (b"1", zlib.compress(b"9" * 100_000)),
    "nothing": lambda _: (b"1", b""),
    "no json": lambda _: (b"1", zlib.compress(b"{")),
    "cut off": lambda _: (b"1", packed([1, 2, 3])[:-6]),
    "no parts": lambda _: (b"0", b""),
    "a million parts": lambda _: (b"1000000", b""),
    "parts of 100,000 digits": lambda _: (b"9" * 100_000, b""),
    "a negative number of parts": lambda _: (b"-1", b""),
    "parts that are no number": lambda _: (b"\xb2", b""),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_message_is_a_sentence_that_names_who_sent_it(tmp_path: Path, kind: str) -> None:
    marker, rank = tmp_path / "marker", exchange(0)
    count, content = FORGED[kind](marker)
    rank._store.set("plan/1", count)
    rank._store.set("plan/1/0", content)
    with pytest.raises(RankFailedError, match="message plan/1 of rank 1: got") as refusal:
        rank.gather("plan", SavePlan, [1])
    assert not marker.exists()
    assert len(str(refusal.value)) < 1_000


def test_a_message_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros are packed a thousand to one."""
    from otel_straggler.checkpoint import store

    monkeypatch.setattr(store, "_MAX_BYTES", 1 << 16)
    rank = exchange(0)
    rank._store.set("plan/1", b"1")
    rank._store.set("plan/1/0", BOMB)
    with pytest.raises(RankFailedError, match="cut off, or more than 65,536 bytes"):
        rank.gather("plan", SavePlan, [1])


def test_why_a_rank_has_failed_is_one_line() -> None:
    rank = exchange(0)
    rank._store.set("failed", "rank 1: no space\nWARNING rank 2 stole it\r\n" + "x" * 10_000)
    with pytest.raises(RankFailedError) as failure:
        rank.gather("plan", SavePlan, [1])
    assert str(failure.value).startswith("rank 1: no space WARNING rank 2 stole it x")
    assert len(str(failure.value)) <= 2_000


@pytest.mark.parametrize(
    "left", [b"\x80\x04N.", b"[]", b"[1, 2]", b'[["a", 7], "", ""]', b'[["a"], "", ""]', b"{}"]
)
def test_what_a_rank_leaves_while_it_joins_has_a_type(left: bytes) -> None:
    with pytest.raises(UnavailableError, match="Run the same version of otel-straggler"):
        _content_or_error(left, _Opened)


def test_an_error_of_a_rank_that_joins_arrives_as_it_is() -> None:
    with pytest.raises(UnavailableError, match=r"^no space$"):
        _content_or_error(json.dumps([None, "UnavailableError", "no space"]), _Opened)
    assert _content_or_error(json.dumps([["a", "b"], "", ""]), _Opened) == ("a", "b")


def test_a_path_is_a_path_of_this_system() -> None:
    path = plain.decode(plain.encode(Path(os.sep) / "a"), Path)
    assert path == Path("/a")
