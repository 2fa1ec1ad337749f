"""What is used of torch that is private or young: the table, the torch here, and other versions."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import otel_straggler
from otel_straggler.doctor.versions import check_torch_parts
from otel_straggler.torch_parts import (
    FEATURES,
    READ,
    TESTED,
    Part,
    installed_files,
    release,
)

from ..torch_wheels import VERSIONS, wheel_of

PARTS = sorted({part for feature in FEATURES for part in feature.parts}, key=lambda p: p.path)
ONLY_ON_OBJECTS = {"logger", "ints_map", "_cached_storage_mapping", "_device_types"}
"""Attributes that an object gets when it is made."""
NOT_OF_TORCH = {
    "_GLOBAL_ARGS": "Megatron",
    "_Unpickler": "pickle",
    "_asdict": "named tuples",
    "_continue": "Kubernetes' client",
    "_csv": "csv",
    "_current_frames": "sys",
    "_getframe": "sys",
    "_make": "named tuples",
    "_monitor_candidates": "Lightning",
    "_on_after_fetch": "Lightning",
    "_on_before_fetch": "Lightning",
    "_option_string_actions": "argparse",
    "_save_last_checkpoint": "Lightning",
    "_reconstruct": "NumPy",
    "_Stop": "pickle",
    "_file_read": "pickle",
    "_file_readline": "pickle",
}


def is_private(name: str) -> bool:
    return name[:1] == "_" and name[:2] != "__" and name.isidentifier()


def names_used(tree: ast.Module, *, knows_torch: bool) -> set[str]:
    """Attributes, names that are imported, and texts that may be looked up in torch."""
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_path = re.fullmatch(r"torch(\.\w+)+", node.value) is not None
            if is_path or knows_torch:
                used |= set(node.value.split(".")) if is_path else {node.value}
        elif isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names} | set((node.module or "").split("."))
    return used


def names_defined(tree: ast.Module) -> set[str]:
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            own |= {node.attr} if node.value.id in {"self", "cls"} else set()
    return own


def test_every_private_name_that_the_package_uses_of_torch_is_in_the_table() -> None:
    """A new one has to be listed, with the first torch that has it."""
    used: set[str] = set()
    own: set[str] = set()
    for file in Path(otel_straggler.__path__[0]).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        own |= names_defined(tree)
        if file.name != "torch_parts.py":
            used |= names_used(tree, knows_torch="torch" in text)
    private = {name for name in used - own if is_private(name)}
    listed = {name for part in PARTS for name in part.names}
    assert private - listed - set(NOT_OF_TORCH) == set()
    assert set(NOT_OF_TORCH) <= private  # none is kept for nothing
    assert private >= {"_dcp_logger", "_execution_engine", "_WorkerServer", "_state_dict_stager"}


def test_the_torch_that_is_installed_has_every_part_in_its_files_and_when_it_runs() -> None:
    """So reading files says what an import would find."""
    torch = pytest.importorskip("torch")
    read = installed_files()
    assert read is not None
    assert [part.path for part in PARTS if not part.is_in(read)] == []
    assert torch.__version__.partition("+")[0] in TESTED
    assert [part.path for part in PARTS if not is_there(part)] == []


def is_there(part: Part) -> bool:
    """Looked up by importing it."""
    names = part.names
    for length in range(len(names) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(names[:length]))
        except ImportError:
            continue
        for name in names[length:]:
            if name in ONLY_ON_OBJECTS:
                return True
            if not hasattr(owner, name):
                return "_cuda_" in name  # of builds with CUDA
            owner = getattr(owner, name)
        return True
    return False


def test_a_part_that_nobody_has_is_missed() -> None:
    """By the same readers."""
    read = installed_files()
    if read is None:
        pytest.skip("no torch: its files would show that a name which is not there is missed")
    for path in (
        "torch.distributed.distributed_c10d._no_such_name",
        "torch.distributed.no_such_module.name",
        "torch.storage._StorageBase._no_such_method",
        "torch.distributed.checkpoint.state_dict_saver.async_save(no_such_parameter)",
    ):
        assert not Part(path).is_in(read)
    assert not Part("torch._C._no_such_name_at_all", is_compiled=True).is_in(lambda _: b"_C._other")


def test_the_doctor_says_what_a_torch_lacks_and_which_has_it() -> None:
    """Here one without DCP's stager of states, and whose ``async_save`` is old."""
    old = b"def async_save(state_dict, *, checkpoint_id=None, process_group=None): ..."

    def read(path: str) -> bytes | None:
        if path.endswith("_state_dict_stager.py"):
            return None
        if path.endswith("checkpoint/state_dict_saver.py"):
            return old
        return files(path)

    files = installed_files()
    if files is None:
        pytest.skip("no torch: its files would show what the doctor says of one that lacks a part")
    findings = list(check_torch_parts("2.6.0", read))
    manager, *others = findings
    assert (manager.status, manager.remedy) == ("info", "pip install 'torch>=2.9'")
    assert "async_save(no_dist)" in manager.sentence
    assert "needed for `checkpoint.Manager`. Without: it raises" in manager.sentence
    assert any("_state_dict_stager.StateDictStager" in each.sentence for each in others)


def test_the_doctor_finds_nothing_wrong_with_a_torch_that_is_tested() -> None:
    if installed_files() is None:
        pytest.skip("no torch: the doctor would say that it has every part")
    [finding] = check_torch_parts(TESTED[-1], installed_files())
    assert (finding.status, finding.value) == ("ok", [])


def test_a_torch_that_is_newer_than_those_tested_is_said() -> None:
    """Nothing is said without a torch."""
    if installed_files() is not None:
        *_, finding = check_torch_parts("2.99.0", installed_files())
        newest = f"{TESTED[-1]}, the newest that is tested."
        assert finding.sentence == f"torch 2.99.0 is newer than {newest}"
    assert list(check_torch_parts(None, None)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("version", VERSIONS)
def test_each_part_is_in_the_wheels_since_the_version_that_the_table_names(
    tmp_path: Path, version: str
) -> None:
    """From 2.4 on; read in the wheels, and nothing of them is imported."""
    with wheel_of(version, tmp_path) as wheel:
        names = set(wheel.namelist())
        cached: dict[str, bytes] = {}

        def read(path: str) -> bytes | None:
            if path in names and path not in cached:
                cached[path] = wheel.read(path)
            return cached.get(path)

        expected = {p.path: release(version) >= release(p.since) for p in PARTS}
        assert {part.path: part.is_in(read) for part in PARTS} == expected


def test_the_wheels_that_are_read_are_those_that_the_page_names() -> None:
    """With the ones that the tests run with."""
    assert (VERSIONS[0], VERSIONS[-1]) == READ
    assert set(TESTED) <= set(VERSIONS)
