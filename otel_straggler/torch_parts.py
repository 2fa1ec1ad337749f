"""What the package uses of torch that is private, or younger than torch 2.4, by feature.

Each part is looked up where it is used, and may be missing: then its feature says so. Here it is
listed with the first torch that has it, so that ``doctor`` can say before a training starts what
does not work with the torch that is installed. Parts are found by reading torch's files, also in
wheels of other versions (``tests/torch_wheels.py``): torch is not imported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTED: Final = ("2.13.0", "2.14.1")
"""With which the tests run for each push; of others the files are read."""
READ: Final = ("2.4.1", "2.14.1")
"""From which to which torch the files were read."""
COMPILED: Final = ("torch/lib/libtorch_python.so", "torch/lib/libtorch_python.dylib")
ReadFile = Callable[[str], "bytes | None"]
"""Returns a file of torch by its path, ``torch/...``; None: there is none."""
_TRIES: Final = 4
"""CPython 3.11 counts the depth of all threads that parse together (gh-106905), as those do that
print a traceback: "AST constructor recursion depth mismatch" says nothing about the file."""


@dataclass(frozen=True, slots=True)
class Part:
    """A name, or in parentheses a parameter of a function.

    Attributes:
        path: with the module that defines it.
        since: the first torch that has it; empty: 2.4 has it.
        is_compiled: no file of Python or stubs has the name, so it is looked for in the library.
    """

    path: str
    since: str = ""
    is_compiled: bool = False

    @property
    def parameter(self) -> str:
        return self.path.partition("(")[2].rstrip(")")

    @property
    def names(self) -> list[str]:
        return self.path.partition("(")[0].split(".")

    def is_in(self, read: ReadFile) -> bool:
        """Whether the torch whose files ``read`` returns has it."""
        if self.is_compiled:
            name = self.names[-1].encode()
            return any(name in (read(path) or b"") for path in COMPILED)
        return any(
            _defines(tree, rest, self.parameter) for tree, rest in _modules(self.names, read)
        )


@dataclass(frozen=True, slots=True)
class Feature:
    """What does not work without any one of its parts.

    Attributes:
        name: in a sentence; lost: what happens where a part is missing.
    """

    name: str
    lost: str
    parts: tuple[Part, ...]

    @property
    def since(self) -> str:
        """The first torch with all of it; empty: 2.4 has it."""
        return max((part.since for part in self.parts), key=release)

    def missing(self, read: ReadFile) -> list[Part]:
        return [part for part in self.parts if not part.is_in(read)]


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with.

    >>> release("2.13.0+cpu") > release("2.9"), release("4.25.0rc1"), release("")
    (True, (4, 25, 0), ())
    """
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def installed_files() -> ReadFile | None:
    """Of the torch that an import would load; it is not imported. None: there is none."""
    spec = importlib.util.find_spec("torch")
    folders = [*(spec.submodule_search_locations or ())] if spec is not None else []
    if not folders:
        return None
    parent = Path(folders[0]).parent

    def read(path: str) -> bytes | None:
        file = parent / path
        return file.read_bytes() if file.is_file() else None

    return read


_DCP: Final = "torch.distributed.checkpoint"
_C10D: Final = "torch._C._distributed_c10d"
_DDP: Final = "torch.nn.parallel.distributed.DistributedDataParallel"
_AGENT: Final = "torch.distributed.elastic.agent.server.api.SimpleElasticAgent"
_PROFILE: Final = "torch.autograd.profiler.profile"
FEATURES: Final = (
    Feature(
        "`checkpoint.Manager`",
        "it raises `UnavailableError` when it is made",
        (
            Part(f"{_DCP}.state_dict_saver.async_save(async_checkpointer_type)", "2.7"),
            Part(f"{_DCP}.state_dict_saver.async_save(async_stager)", "2.9"),
            Part(f"{_DCP}.state_dict_saver.async_save(no_dist)", "2.9"),
            Part(f"{_DCP}.state_dict_saver.AsyncSaveResponse", "2.9"),
            Part(f"{_DCP}.staging.AsyncStager.should_synchronize_after_execute"),
            Part(f"{_DCP}.filesystem.FileSystem.create_stream"),
            Part(f"{_DCP}.filesystem.FileSystem.rename"),
            Part(f"{_DCP}.filesystem._StorageInfo"),
            Part(f"{_DCP}.metadata._MEM_FORMAT_ENCODING"),
            Part(f"{_DCP}._traverse.set_element"),
            Part("torch.serialization._get_layout"),
            Part("torch.serialization.safe_globals", "2.5"),
            Part("torch.serialization.get_unsafe_globals_in_checkpoint", "2.6"),
            Part(f"{_C10D}.ProcessGroup._device_types"),
            Part("torch.distributed.distributed_c10d._get_default_store"),
            Part("torch.accelerator.synchronize", "2.6"),
        ),
    ),
    Feature(
        "copies of checkpoints in shared memory, again in the same",
        "one warning when the manager is made; the state is copied into memory of the process, and "
        "a thread writes it",
        (
            Part(f"{_DCP}._state_dict_stager.StateDictStager", "2.8"),
            Part(f"{_DCP}._state_dict_stager.StateDictStager(share_memory)", "2.8"),
        ),
    ),
    Feature(
        "memory that is ready, and pinned, before the first checkpoint",
        "one line in the log; saves block longer",
        (
            Part(f"{_DCP}._state_dict_stager.StateDictStager._cached_storage_mapping", "2.8"),
            Part("torch.storage._StorageBase._new_shared"),
            Part("torch.cuda.cudart"),
        ),
    ),
    Feature(
        "checkpoints without torch's own checksums, which ours replace",
        "nothing is said; writing takes a little longer",
        (Part("torch.serialization.set_crc32_options", "2.6"),),
    ),
    Feature(
        "saves and loads of others through `torch.distributed.checkpoint` as sections",
        "one line in the log; they are not seen",
        (
            Part(f"{_DCP}.logger._dcp_logger"),
            Part(f"{_DCP}.state_dict_saver._stateful_to_state_dict"),
        ),
    ),
    Feature(
        "waiting at the end of `backward()`",
        "one line in the log; it is not measured",
        (
            Part("torch.autograd.variable.Variable._execution_engine"),
            Part("torch._C.DisableTorchFunction"),
        ),
    ),
    Feature(
        "waiting in collectives that are called, of buffers, and in functional ones",
        "one line in the log each; it is not measured",
        (
            Part(f"{_C10D}.Work.wait"),
            Part(f"{_C10D}._broadcast_coalesced"),
            Part("torch.distributed._functional_collectives.wait_tensor"),
        ),
    ),
    Feature(
        "DDP's own timers: time of forward and backward without what they wait",
        "one line in the log; it is not measured",
        (
            Part(f"{_DDP}._pre_forward"),
            Part(f"{_DDP}._set_ddp_runtime_logging_sample_rate"),
            Part(f"{_DDP}.logger"),
            Part(f"{_C10D}.Logger._get_ddp_logging_data"),
            Part(f"{_C10D}.DDPLoggingData.ints_map"),
        ),
    ),
    Feature(
        "flight records of NCCL and gloo, read in the live process",
        "a hang names no collective; one warning",
        (
            Part(f"{_C10D}._WorkerServer"),
            Part(f"{_C10D}._get_handler_names", "2.5", is_compiled=True),
            Part("torch.distributed.distributed_c10d._World.pg_names"),
        ),
    ),
    Feature(
        "attempts, exits and restarts under `otel-straggler run`",
        "the launcher fails when it starts",
        (
            *(
                Part(f"{_AGENT}.{name}")
                for name in (
                    "_rendezvous",
                    "_start_workers",
                    "_monitor_workers",
                    "_restart_workers",
                    "_shutdown",
                )
            ),
            Part("torch.distributed.launcher.api.LocalElasticAgent"),
            Part("torch.distributed.run.get_args_parser"),
        ),
    ),
    Feature(
        "a run's name and the collector's address through the store of the process group",
        "they come from the environment",
        (Part("torch.distributed.distributed_c10d._get_default_store"),),
    ),
    Feature(
        "sections in code that `torch.compile` compiles, without a graph break",
        "one warning, and such code breaks its graph there",
        (
            Part("torch._dynamo.decorators.substitute_in_graph", "2.5"),
            Part("torch._C._dynamo.eval_frame.set_eval_frame", is_compiled=True),
            Part("torch._dynamo.eval_frame.skip_code"),
            Part("torch._dynamo.variables.builder.VariableBuilder._type_dispatch"),
            Part("torch._dynamo.variables.ctx_manager.NullContextVariable"),
            Part("torch._dynamo.guards.GuardBuilder.TYPE_MATCH"),
            Part("torch._dynamo.compiled_autograd.compiled_autograd_enabled"),
        ),
    ),
    Feature(
        "sections that activation checkpointing leaves early, when it computes again",
        "they count as sections that raised",
        (Part("torch.utils.checkpoint._StopRecomputationError"),),
    ),
    Feature(
        "backward() in code of TorchScript while loops are watched",
        "TorchScript compiles the call as it may",
        (
            Part("torch.jit._builtins._builtin_ops"),
            Part("torch.jit._builtins._builtin_table"),
        ),
    ),
    Feature(
        "profiles with stacks, and the word that a profiler is at work already",
        "the profile says so",
        (
            Part("torch._C._profiler._ExperimentalConfig"),
            Part("torch._C._autograd._profiler_enabled"),
            Part("torch.autograd.profiler._is_profiler_enabled"),
        ),
    ),
    Feature(
        "CUPTI for torch.profiler while kernels are timed",
        "nothing is said; whoever came last has CUPTI",
        (
            Part("torch.profiler.profiler._KinetoProfile.prepare_trace"),
            Part("torch.profiler.profiler._KinetoProfile.start_trace"),
            Part("torch.profiler.profiler._KinetoProfile.stop_trace"),
            Part(f"{_PROFILE}._prepare_trace"),
            Part(f"{_PROFILE}._start_trace"),
        ),
    ),
    Feature(
        "which GPU and stream a thread uses",
        "the GPU is not named; sections are timed on the default stream",
        (
            Part("torch.cuda._is_in_bad_fork"),
            Part("torch._C._cuda_getCurrentRawStream"),
        ),
    ),
)


def _modules(names: list[str], read: ReadFile) -> Iterator[tuple[ast.Module, list[str]]]:
    """Files that may define it, with what is left of the name in them."""
    for length in range(len(names) - 1, 0, -1):
        base = "/".join(names[:length])
        for path in (f"{base}.py", f"{base}/__init__.py", f"{base}.pyi", f"{base}/__init__.pyi"):
            content = read(path)
            if content is not None:
                yield _parsed(content), names[length:]


@functools.lru_cache(maxsize=64)
def _parsed(content: bytes) -> ast.Module:
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return ast.parse(content)
    return ast.parse(content)


def _defines(tree: ast.AST, names: list[str], parameter: str) -> bool:
    name, rest = names[0], names[1:]
    for node in _bound_in(tree):
        if name not in _names_of(node):
            continue
        if rest:
            if isinstance(node, ast.ClassDef) and _defines(node, rest, parameter):
                return True
        elif not parameter or parameter in _parameters_of(node):
            return True
    return False


def _bound_in(tree: ast.AST) -> Iterator[ast.AST]:
    """What binds names in a module or class, also under ``if`` and ``try``, and what methods of a
    class assign to ``self``."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _bound_in(node)
        elif isinstance(tree, ast.ClassDef) and isinstance(node, ast.FunctionDef):
            yield from (each for each in ast.walk(node) if isinstance(each, ast.Attribute))


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    is_own = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return [node.attr] if is_own and isinstance(node, ast.Attribute) else []


def _parameters_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef):
        inits = [each for each in node.body if "__init__" in _names_of(each)]
        return [name for each in inits for name in _parameters_of(each)]
    if isinstance(node, ast.FunctionDef):
        return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
    return []
