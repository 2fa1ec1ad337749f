"""Every place of the package that could execute what it reads, with the reason why it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_straggler

PACKAGE = Path(otel_straggler.__file__).parent
MODULES = frozenset({
    "pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib",
    "jsonpickle", "code", "codeop", "runpy", "imp", "xmlrpc", "pdb", "logging.config", "dbm",
    "pandas", "multiprocessing.shared_memory", "multiprocessing.managers",
})  # fmt: skip
CALLS = frozenset({"eval", "exec", "compile", "__import__"})
METHODS = frozenset({
    # torch's collectives of objects, which pickle them
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list",
    # others that read pickles, or run a text
    "load_module", "import_module", "exec_module", "read_pickle", "unsafe_load", "full_load",
    "load_extension", "system", "popen", "run_path", "run_module", "import_string",
})  # fmt: skip
READERS = {
    "torch.load": "weights_only",
    "np.load": "allow_pickle",
    "numpy.load": "allow_pickle",
    "dcp.load": "planner",
    "dcp.async_save": "no_dist",
}
"""Functions that execute what they read unless this argument is given."""

KNOWN = {
    ("recordings/diagnostics_files.py", "import pickle"): "its own unpickler, which loads no class",
    ("checkpoint/unpickling.py", "import pickle"): "its own unpickler, of a table of DCP's classes",
    ("checkpoint/allowed.py", "import pickle"): "the error that torch.load raises",
    (
        "checkpoint/writer_process.py",
        "import pickle",
    ): "dumps, to name the entry of this training's "
    "state that cannot cross the pipe to its own child, which DCP makes; nothing is read",
    ("checkpoint/allowed.py", "import_module"): "names that the program itself gives to allow=",
    ("collector/ingest/codings.py", "import_module"): "codings of a table of its own",
    ("collector/ingest/loop_thread.py", "import_module"): "uvloop, if it is installed",
    ("native.py", "import_module"): "the compiled extension",
    ("integrations/lightning/step_timing.py", "import_module"): "Lightning, by either name",
    ("cli/group.py", "import_module"): "the module of a command of the table",
    ("integrations/zero_code/__main__.py", "import runpy"): "the script of the command line",
    ("integrations/zero_code/__main__.py", "run_path"): "the script of the command line",
    ("integrations/zero_code/__main__.py", "run_module"): "the module of the command line",
    ("yaml_file.py", "yaml.load"): "a loader derived from SafeLoader",
}
"""Uses by file; a new one needs a reason here."""


def uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {each.name}" for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or "", *(f"{node.module}.{each.name}" for each in node.names)}
            yield from (f"import {name}" for name in sorted(names & MODULES))
        elif isinstance(node, ast.Call):
            yield from of_call(node)


def of_call(node: ast.Call) -> Iterator[str]:
    text = ast.unparse(node.func)
    name = text.rpartition(".")[2]
    given = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}
    if (isinstance(node.func, ast.Name) and name in CALLS) or name in METHODS:
        yield name
    if text == "yaml.load":
        yield text
    if text in READERS:
        needed = READERS[text]
        is_right = needed in given and given[needed] != "weights_only=False"
        if not is_right or given[needed] == ("True" if needed == "allow_pickle" else "False"):
            yield f"{text} without {needed}"
    if given.get("shell") == "True":
        yield "a shell"
    if name == "recv" and text.split(".")[0] in {"peer", "connection", "pipe"}:
        yield "recv of a Connection, which unpickles"


def found() -> dict[tuple[str, str], int]:
    places: dict[tuple[str, str], int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for use in uses(tree):
            key = (path.relative_to(PACKAGE).as_posix(), use)
            places[key] = places.get(key, 0) + 1
    return places


def test_nothing_that_is_read_is_executed_but_for_a_reason() -> None:
    """From folders, stores, pipes, and peers; a use that is gone is taken off the list."""
    assert set(found()) == set(KNOWN)
    assert all(KNOWN.values())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import marshal as m", "import shelve",
        "from multiprocessing import managers", "from logging import config",
        "eval(text)", "exec(text)", "compile(text, '', 'exec')", "__import__(name)",
        "torch.load(path)", "torch.load(path, weights_only=False)", "np.load(path)",
        "np.load(path, allow_pickle=True)", "yaml.load(text, Loader)", "yaml.unsafe_load(text)",
        "os.system(text)", "subprocess.run(text, shell=True)", "runpy.run_path(path)",
        "dist.all_gather_object(out, x)", "broadcast_object_list([x])", "dcp.load(state)",
        "dcp.async_save(state)", "peer.recv()", "importlib.import_module(name)",
    ],
)  # fmt: skip
def test_each_of_these_would_be_noticed(source: str) -> None:
    """The check can fail."""
    assert list(uses(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(path, weights_only=True)", "np.load(path, allow_pickle=False)", "sock.recv(9)",
        "dcp.load(state, planner=PlainPlanner(path))", "re.compile(text)", "peer.recv_bytes(9)",
    ],
)  # fmt: skip
def test_these_are_fine(source: str) -> None:
    assert not list(uses(ast.parse(source)))
