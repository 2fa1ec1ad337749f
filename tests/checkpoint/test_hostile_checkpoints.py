"""Nothing in a folder of checkpoints is executed, whoever wrote it; what is plain is restored."""

from __future__ import annotations

import builtins
import collections
import copyreg
import datetime as dt
import decimal
import enum
import io
import logging
import os
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint import metadata as dcp

from otel_straggler.checkpoint import Manager, PerRank, restoring, training_state
from otel_straggler.checkpoint.folder import list_checkpoints
from otel_straggler.checkpoint.stateful import RandomState
from otel_straggler.errors import ConfigError, InputError, UnavailableError

from . import forging
from .forging import Running, touching
from .states import manager_in, restored, saved, state_at

EPOCH = "position.epoch"


def of_metadata(**fields: Any) -> Callable[[Path, Any], Any]:
    """Metadata of DCP's with a value in a place where it is not."""

    def edit(marker: Path, metadata: Any) -> None:
        for name, value in fields.items():
            setattr(metadata, name, value(marker, metadata))

    return edit


EDITS: dict[str, Callable[[Path, Any], Any]] = {
    "an object in its place": lambda marker, _: touching(marker),
    "the plan": of_metadata(planner_data=lambda marker, _: touching(marker)),
    "a key": of_metadata(
        storage_data=lambda marker, its: {touching(marker): 1, **its.storage_data}
    ),
    "a tensor": of_metadata(
        state_dict_metadata=lambda marker, its: {
            **its.state_dict_metadata, "weights": touching(marker),
        }
    ),
    "a function of a module of torch": lambda marker, _: Running(
        torch.serialization.os.mkdir, str(marker)
    ),
    "a process": lambda marker, _: Running(subprocess.Popen, ["mkdir", str(marker)]),
    "a text to evaluate": lambda marker, _: Running(
        builtins.eval, f"__import__('os').mkdir({str(marker)!r})"
    ),
    "getattr": lambda *_: Running(getattr, dcp.Metadata, "__init__"),
    "a file of torch": lambda marker, _: Running(torch.load, str(marker)),
}  # fmt: skip


def made_by(opcodes: str) -> Callable[[Path], bytes]:
    """Args:
    opcodes: a pickle; MARKER stands for the folder that it would make.
    """
    return lambda marker: opcodes.encode("latin-1").replace(b"MARKER", str(marker).encode())


PICKLES: dict[str, Callable[[Path], bytes]] = {
    "text": made_by("cos\nmkdir\n(VMARKER\ntR."),
    "an old instance": made_by("(ios\nmkdir\n."),
    "an old object": made_by("(cos\nmkdir\nVMARKER\no."),
    "a name with dots": made_by("\x80\x04\x8c\x13torch.serialization\x8c\x08os.mkdir\x93."),
    "a name of torch": made_by("\x80\x04\x8c\x05torch\x8c\x04load\x93."),
    "a number of copyreg": made_by("\x80\x04\x82\x01."),
    "an object from outside": made_by("\x80\x04\x8c\x01xQ."),
    "a persistent name": made_by("Px\n."),
    "a class by itself": made_by("\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n."),
    "attributes of a class": made_by(
        "\x80\x04ctorch.distributed.checkpoint.metadata\nMetadataIndex\nN}(X\x08\0\0\0__hash__K\1u\x86b."
    ),
    "attributes of a function": made_by(
        "\x80\x04ctorch.serialization\n_get_layout\nN}(X\x0c\0\0\0__defaults__K\1u\x86b."
    ),
    "a memo of 64 GB": made_by("\x80\x04Nr\xff\xff\xff\xff."),
    "a frame of 2^60 bytes": made_by("\x80\x04\x95\0\0\0\0\0\0\0\x10."),
    "bytes of 2^60": made_by("\x80\x04\x8e\0\0\0\0\0\0\0\x10."),
    "a text of 4 GB": made_by("\x80\x04X\xff\xff\xff\xff."),
    "a number of 100,000 digits": made_by(f"L{'9' * 100_000}L\n."),
    "a set": made_by("\x80\x04\x8f(K\1\x90."),
    "a key that takes for ever to hash": made_by("\x80\x04})" + "2\x86" * 60 + "Ns."),
    "nothing": made_by(""),
    "no end": made_by("\x80\x04}"),
    "None": made_by("\x80\x04N."),
    "a list": made_by("\x80\x04]."),
    "marks": made_by("(" * 100_000 + "."),
}  # fmt: skip


def refused(folder: Path) -> str:
    """The sentence that a restore ends with; state and folder are as they were."""
    state = state_at(0)
    with manager_in(folder) as manager, pytest.raises(InputError) as refusal:
        manager.restore(state)
    return str(refusal.value)


@pytest.mark.parametrize("kind", EDITS)
def test_metadata_that_names_a_function_is_not_run(tmp_path: Path, kind: str) -> None:
    """DCP's metadata is a pickle: in any place of it, whatever it calls."""
    marker, [newest] = tmp_path / "marker", saved(tmp_path / "c", 1)
    forging.edited_metadata(newest, lambda its: EDITS[kind](marker, its))
    sentence = refused(tmp_path / "c")
    assert not marker.exists()
    assert "what DCP writes" in sentence
    assert "It was not run" in sentence


@pytest.mark.parametrize("kind", PICKLES)
def test_other_pickles_in_its_place_are_a_sentence(tmp_path: Path, kind: str) -> None:
    """Operations that DCP's pickles do not have, and numbers that would fill the memory."""
    marker, [newest] = tmp_path / "marker", saved(tmp_path / "c", 1)
    forging.with_metadata(newest, PICKLES[kind](marker))
    sentence = refused(tmp_path / "c")
    assert not marker.exists()
    assert f"{newest.name}: .metadata" in sentence
    assert hash(dcp.MetadataIndex("a")) == hash(dcp.MetadataIndex("a"))


def stored(name: str, value: Any) -> Callable[[Any], None]:
    """Args:
    name: of a field of the place of each entry.
    """

    def edit(metadata: Any) -> None:
        for each in metadata.storage_data.values():
            setattr(each, name, value)

    return edit


def tensor(name: str, value: Any) -> Callable[[Any], None]:
    return lambda metadata: setattr(metadata.state_dict_metadata["weights"], name, value)


WRONG: dict[str, Callable[[Any], None]] = {
    "a path out of it": stored("relative_path", "../../secret"),
    "a path from the root": stored("relative_path", "/etc/passwd"),
    "a file that is not in the manifest": stored("relative_path", "__9_9.distcp"),
    "the metadata for a file of numbers": stored("relative_path", 7),
    "a huge offset": stored("offset", 1 << 62),
    "a negative offset": stored("offset", -1),
    "a huge length": stored("length", 1 << 62),
    "a length that is no number": stored("length", "9"),
    "an encoding": stored("transform_descriptors", ["zstd"]),
    "no places": lambda metadata: setattr(metadata, "storage_data", None),
    "places in a list": lambda metadata: setattr(metadata, "storage_data", []),
    "no entries": lambda metadata: setattr(metadata, "state_dict_metadata", 3),
    "a part with a negative size": tensor(
        "chunks", [dcp.ChunkStorageMetadata(torch.Size([0]), torch.Size([-5]))]
    ),
    "a part of more dimensions": tensor(
        "chunks", [dcp.ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([5, 5]))]
    ),
    "a size that is none": tensor("size", [1_000]),
    "parts that are none": tensor("chunks", "none"),
    "a tensor for an entry of another kind": lambda metadata: metadata.state_dict_metadata.update(
        weights=dcp.StorageMeta()
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_metadata_of_other_files_and_sizes_is_a_sentence(tmp_path: Path, kind: str) -> None:
    [newest] = saved(tmp_path, 1)
    forging.edited_metadata(newest, WRONG[kind])
    assert "report this; else delete the checkpoint" in refused(tmp_path)


def numpy_with_addresses(_: Path) -> bytes:
    """An array of objects whose type says that it has none, so that bytes are taken for addresses.
    NumPy believes it, and the process ends at the first look at an element."""
    letters = b"cnumpy\ndtype\nX\x02\0\0\0O8\x89\x88\x87R"
    no_flags = b"(K\x03X\x01\0\0\0|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\0tb"
    content = b"c_codecs\nencode\nX\x08\0\0\0AAAAAAAAX\x06\0\0\0latin1\x86R"
    array = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85X\x01\0\0\0b\x87R"
    state = b"(K\x01K\x01\x85" + letters + no_flags + b"\x89" + content + b"tb."
    return forging.torch_archive(b"\x80\x02" + array + state)


class Waiting:
    """Runs something when its state is set."""

    def __setstate__(self, state: dict[str, str]) -> None:
        os.mkdir(state["marker"])  # noqa: PTH102


def waiting(marker: Path) -> Waiting:
    made = Waiting()
    made.__dict__["marker"] = str(marker)
    return made


OBJECTS: dict[str, Callable[[Path], bytes]] = {
    "a function": lambda marker: forging.torch_saved(touching(marker)),
    "a function in a list": lambda marker: forging.torch_saved([{"a": (touching(marker),)}]),
    "a process": lambda marker: forging.torch_saved(
        Running(subprocess.Popen, ["mkdir", str(marker)])
    ),
    "a text to evaluate": lambda marker: forging.torch_saved(
        Running(builtins.eval, f"__import__('os').mkdir({str(marker)!r})")
    ),
    "a class of the program": lambda marker: forging.torch_saved(waiting(marker)),
    "getattr": lambda _: forging.torch_saved(Running(getattr, torch.Tensor, "numpy")),
    "copyreg": lambda _: forging.torch_saved(Running(copyreg._reconstructor, Path, object, None)),
    "a plain pickle": lambda marker: pickle.dumps(touching(marker)),
    "a plain pickle with torch's magic": lambda marker: torch_legacy(touching(marker)),
    "addresses for objects of NumPy": numpy_with_addresses,
    "an archive of something else": lambda _: forging.torch_archive(b"no pickle"),
    "no bytes": lambda _: b"",
    "the half": lambda _: forging.torch_saved({"a": 1})[:200],
}


def torch_legacy(value: Any) -> bytes:
    """As torch wrote before 1.6: pickles one after the other."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_that_calls_a_function_is_not_run(tmp_path: Path, kind: str) -> None:
    """What is no tensor is a pickle, too; of tensors torch itself reads no other."""
    marker, [newest] = tmp_path / "marker", saved(tmp_path / "c", 1)
    forging.with_object(newest, EPOCH, OBJECTS[kind](marker))
    sentence = refused(tmp_path / "c")
    assert not marker.exists()
    assert EPOCH in sentence
    assert newest.name in sentence


def test_classes_that_the_program_trusts_elsewhere_do_not_open_numpy(tmp_path: Path) -> None:
    """Libraries add NumPy's functions to torch's list, as torch's own messages say; here they are
    not used, and are there again afterwards."""
    before = set(torch.serialization.get_safe_globals())
    added = [np.ndarray, np.dtype, np.dtypes.ObjectDType, np._core.multiarray._reconstruct]
    [newest] = saved(tmp_path, 1)
    forging.with_object(newest, EPOCH, numpy_with_addresses(tmp_path))
    with torch.serialization.safe_globals(added):
        assert EPOCH in refused(tmp_path)
        assert set(torch.serialization.get_safe_globals()) == {*before, *added}
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("position", [625, -5, 10**6, None, "1", 1.0])
def test_numpys_generator_reads_no_memory_beyond_its_numbers(tmp_path: Path, position: Any) -> None:
    """It takes any position that it is given; Python's and torch's refuse it by themselves."""
    with manager_in(tmp_path) as manager:
        path = manager.save(1, {"random": RandomState()})
    assert path is not None
    before = np.random.get_state()
    state = ("MT19937", before[1], position, 0, 0.0)
    forging.with_object(path, "random.numpy", forging.torch_saved(state))
    with (
        manager_in(tmp_path) as manager,
        pytest.raises(InputError, match="a position from 0 to 624"),
    ):
        manager.restore({"random": RandomState()})
    assert np.random.get_state()[2] == before[2]


def test_data_that_a_part_does_not_take_is_a_sentence(tmp_path: Path) -> None:
    """It is plain, and none of its: what load_state_dict() raises is named."""
    with manager_in(tmp_path) as manager:
        path = manager.save(1, {"random": RandomState()})
    assert path is not None
    forging.with_object(path, "random.python", forging.torch_saved((0.5, "x", None)))
    with manager_in(tmp_path) as manager, pytest.raises(InputError) as refusal:
        manager.restore({"random": RandomState()})
    assert "ValueError: state with version 0.5 passed to Random.setstate()" in str(refusal.value)
    assert "expected what load_state_dict() of the state takes" in str(refusal.value)


def rewritten(encoded: bytes, old: bytes, new: bytes) -> bytes:
    """In the oldest form that names its classes in full."""
    full = pickle.dumps(pickle.loads(encoded), protocol=3)
    assert old in full
    return full.replace(old, new)


FORMAT = b"ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"
MEMBER = b"X\x17\0\0\0TORCH_CONTIGUOUS_FORMAT"
METADATA_FORMS: dict[str, Callable[[bytes], bytes]] = {
    "protocol 2": lambda encoded: pickle.dumps(pickle.loads(encoded), protocol=2),
    "protocol 3": lambda encoded: pickle.dumps(pickle.loads(encoded), protocol=3),
    "protocol 5": lambda encoded: pickle.dumps(pickle.loads(encoded), protocol=5),
    "a path of Python 3.13": lambda encoded: rewritten(
        encoded, b"cpathlib\nPosixPath", b"cpathlib._local\nPosixPath"
    ),
    "members of Python 3.11.0": lambda encoded: rewritten(
        encoded, FORMAT, b"cbuiltins\ngetattr\n" + FORMAT + MEMBER + b"\x86R0" + FORMAT
    ),
    "no storage_meta, as before torch 2.3": lambda encoded: without(encoded, "storage_meta"),
}


def without(encoded: bytes, name: str) -> bytes:
    metadata = pickle.loads(encoded)
    setattr(metadata, name, None)
    return pickle.dumps(metadata)


@pytest.mark.parametrize("kind", METADATA_FORMS)
def test_metadata_of_other_pythons_and_torches_is_read(tmp_path: Path, kind: str) -> None:
    """The classes are those of torch 2.9 to 2.14; forms differ."""
    [newest] = saved(tmp_path, 1)
    encoded = (newest / forging.METADATA).read_bytes()
    forging.with_metadata(newest, METADATA_FORMS[kind](encoded))
    assert restored(tmp_path)[0] == 1


class Color(enum.Enum):
    RED = 1


@dataclass
class Config:
    """As trainings have it."""

    rate: float
    table: Any = None
    color: Color = Color.RED


class Table(dict[str, int]):
    """A dict with another name, which torch fills in no pickle."""


PLAIN: dict[str, Any] = {
    "numbers": [1, -(2**70), 1.5, float("inf"), True, None, 2 + 3j, b"", b"\0\xff", "x\nä"],
    "containers": {"a": ({1, 2}, frozenset({3}), [()]), "o": collections.OrderedDict(a=[1])},
    "counter": collections.Counter("aab"),
    "others": [PosixPath("/a/b"), decimal.Decimal("1.50"), range(3), slice(1, 2), bytearray(b"x")],
    "times": [
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone.utc), dt.date(2026, 1, 2), dt.timedelta(1),
    ],
    "dtypes": [torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn],
    "of torch": [torch.Size([1, 2]), torch.device("cpu"), torch.strided],
}  # fmt: skip


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_data_is_restored_without_allow(tmp_path: Path, kind: str) -> None:
    with manager_in(tmp_path) as manager:
        assert manager.save(1, {"value": (PLAIN[kind],)}) is not None
        state: dict[str, Any] = {"value": None}
        assert manager.restore(state) == 1
    assert repr(state["value"]) == repr((PLAIN[kind],))


ARRAYS: dict[str, Any] = {
    "float64": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "big-endian": np.arange(4, dtype=">i4"),
    "uint32": np.random.RandomState(3).get_state()[1],
    "bool": np.array([[True], [False]]),
    "complex64": np.array([1 + 2j], dtype=np.complex64),
    "float16": np.array([0.5, np.nan], dtype=np.float16),
    "texts": np.array(["a", "bcä"]),
    "bytes": np.array([b"a", b"bc"]),
    "times": np.array(["2026-01-02"], dtype="M8[ns]"),
    "durations": np.array([3], dtype="m8[s]"),
    "empty": np.zeros((0, 3), dtype=np.int8),
    "scalar": np.float32(1.25),
    "no dimension": np.array(7),
    "records": np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8", (1,))]),
    "objects": np.array([{"a": 1}, None, "x"], dtype=object),
    "type": np.dtype("float32"),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_numpy_are_restored_without_allow(tmp_path: Path, kind: str) -> None:
    """Bit for bit, and they can be written to."""
    value = ARRAYS[kind]
    with manager_in(tmp_path) as manager:
        assert manager.save(1, {"value": {"in": (value, [value])}}) is not None
        state: dict[str, Any] = {"value": {"in": None}}
        assert manager.restore(state) == 1
    found, [again] = state["value"]["in"]
    assert type(found) is type(value)
    assert found is again or isinstance(value, np.generic)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.flags.f_contiguous == value.flags.f_contiguous
        assert found.tolist() == value.tolist() or kind == "float16"
        assert found.tobytes() == value.tobytes() or kind == "objects"
        assert found.flags.writeable
    else:
        assert found == value


rates = torch.optim.lr_scheduler
SCHEDULERS: list[Callable[[Any], Any]] = [
    lambda its: rates.StepLR(its, 3),
    lambda its: rates.CosineAnnealingLR(its, 9),
    lambda its: rates.OneCycleLR(its, 0.1, total_steps=9),
    rates.ReduceLROnPlateau,
    lambda its: rates.CyclicLR(its, 0.01, 0.1, cycle_momentum=False),
    lambda its: rates.SequentialLR(
        its, [rates.ConstantLR(its), rates.ExponentialLR(its, 0.9)], [2]
    ),
]


@pytest.mark.parametrize("made", SCHEDULERS)
@pytest.mark.parametrize("optimizer_of", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RAdam])
def test_what_trainings_save_is_restored_without_allow(
    tmp_path: Path, made: Callable[[Any], Any], optimizer_of: Any
) -> None:
    """Model, optimizer, scheduler, generators of random numbers, by rank."""
    state, step = a_training(made, optimizer_of)
    with manager_in(tmp_path) as manager:
        step()
        assert manager.save(1, state) is not None
        expected = [step(), step()]
    other, step = a_training(made, optimizer_of)
    with manager_in(tmp_path) as manager:
        assert manager.restore(other) == 1
    assert [step(), step()] == expected


def a_training(made: Callable[[Any], Any], optimizer_of: Any) -> tuple[Any, Callable[[], Any]]:
    """State, and a step that returns what depends on all of it."""
    model = torch.nn.Linear(4, 2)
    optimizer = optimizer_of(model.parameters(), lr=0.05)
    scheduler = made(optimizer)
    plateau = isinstance(scheduler, rates.ReduceLROnPlateau)

    def step() -> Any:
        loss = model(torch.randn(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(*([loss.item()] if plateau else []))
        return loss.item(), optimizer.param_groups[0]["lr"], float(np.random.rand())

    loader = PerRank(RandomState())
    return training_state(model, optimizer, scheduler=scheduler, loader=loader), step


def test_a_class_of_the_program_is_named_at_save_and_allowed_at_restore(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal has the class, the key, and what to write, before anything is read."""
    before = set(torch.serialization.get_safe_globals())
    name, color = f"{__name__}.Config", f"{__name__}.Color"
    with manager_in(tmp_path) as manager, caplog.at_level(logging.WARNING):
        assert manager.save(1, {"of": {"config": Config(0.5, np.arange(3))}}) is not None
    assert f"""state 'of.config': Manager(..., allow=["{color}", "{name}"])""" in caplog.text
    [listed] = list_checkpoints(tmp_path)
    assert listed.manifest is not None
    assert listed.manifest.needs == {name: "of.config", color: "of.config"}

    with manager_in(tmp_path) as manager, pytest.raises(InputError) as refusal:
        manager.restore({"of": {"config": None}})
    assert f"{name} (state 'of.config')" in str(refusal.value)
    assert f'allow=["{color}", "{name}"]' in str(refusal.value)

    for allow in ([Config, Color], [name, color]):
        state: dict[str, Any] = {"of": {"config": None}}
        with manager_in(tmp_path, allow=allow) as manager:
            assert manager.restore(state) == 1
        config = state["of"]["config"]
        assert (config.rate, config.color, config.table.tolist()) == (0.5, Color.RED, [0, 1, 2])
    assert set(torch.serialization.get_safe_globals()) == before


def test_a_manifest_that_hides_a_class_lets_nobody_in(tmp_path: Path) -> None:
    with manager_in(tmp_path) as manager:
        path = manager.save(1, {"config": Config(0.5)})
    assert path is not None
    forging.edited_manifest(path, needs={})
    with manager_in(tmp_path) as manager, pytest.raises(InputError) as refusal:
        manager.restore({"config": None})
    assert f"{__name__}.Config (state 'config')" in str(refusal.value)


def test_a_class_with_control_characters_in_its_name_forges_no_line(tmp_path: Path) -> None:
    [path] = saved(tmp_path, 1)
    name = b"csub\x1b[2Jprocess\rWARNING\n\xe2\x80\xaePopen\n"
    forging.with_object(path, EPOCH, forging.torch_archive(b"\x80\x02" + name + b")R."))
    sentence = refused(tmp_path)
    assert sentence.isprintable()
    assert "Popen" in sentence
    forging.edited_manifest(path, needs={"\x1b[2J": "\r"})
    assert refused(tmp_path).isprintable()


@pytest.mark.parametrize("needs", [[], 3, {"a": 1}, {"a": {}}, None])
def test_needs_of_another_kind_are_a_damaged_manifest(tmp_path: Path, needs: Any) -> None:
    _, newest = saved(tmp_path, 1, 2)
    forging.edited_manifest(newest, needs=needs)
    assert restored(tmp_path)[0] == 1


def test_metadata_that_was_changed_after_its_hash_was_compared_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, newest = saved(tmp_path, 1, 2)
    choose = restoring._Restoring.choose

    def choose_and_change(self: Any, step: int | None) -> Any:
        candidate = choose(self, step)
        content = (newest / forging.METADATA).read_bytes()
        (newest / forging.METADATA).write_bytes(content.replace(b"weights", b"heights"))
        return candidate

    monkeypatch.setattr(restoring._Restoring, "choose", choose_and_change)
    with (
        manager_in(tmp_path) as manager,
        pytest.raises(UnavailableError, match="has changed since"),
    ):
        manager.restore(state_at(0))


def test_what_could_not_be_restored_is_not_saved_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Torch fills no dict of another name: the save says so, not the restore a week later."""
    with manager_in(tmp_path) as manager, caplog.at_level(logging.WARNING):
        assert manager.save(1, {"table": (Table(a=1),)}) is None
        assert manager.save(2, {"table": (dict(Table(a=1)),)}) is not None
    assert "was not saved: write: a save: state 'table'" in caplog.text


@pytest.mark.parametrize(
    "allow", ["package.Config", ["nowhere.Config"], ["os"], [3], [Config(1.0)], ["Config"]]
)
def test_a_name_that_is_none_is_refused_when_the_manager_is_made(
    tmp_path: Path, allow: Any
) -> None:
    with pytest.raises(ConfigError, match=r"Manager\(allow=\.\.\.\)"):
        Manager(tmp_path / "c", allow=allow, handle_sigterm=False)
    assert not (tmp_path / "c").exists()


def test_a_renamed_checkpoint_is_not_a_newer_one(tmp_path: Path) -> None:
    """The number in its name is not the one that was saved."""
    [first, _] = saved(tmp_path, 1, 2)
    first.rename(first.with_name("step-9-0000abcd"))
    assert restored(tmp_path)[0] == 2
