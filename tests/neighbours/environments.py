"""Environments beside which the package must work: how each is built, and what is run in it.

Each gets the wheel and nothing else first; then the tools of the tests; then, in some, the extras.
Nothing of it touches the environment that runs this.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NEWEST = ROOT / "constraints-dev.txt"
LONGEST_S = 1_800
TOOLS = ("pytest", "pytest-timeout", "hypothesis")
OWN_TOOLS = ("grpcio",)  # tests of the client may use it as a server
COLLECTOR_TOOLS = (
    "otel-straggler[collector,cli]",
    "prometheus-client",
    "opentelemetry-exporter-otlp-proto-grpc",
)
BASE_FACTS = ("neighbours/base_facts.py",)
OF_THE_CLIENT = ("client", "native", "sdk_sink", "wire_decode")
# Scores by their definitions, verdicts and hangs: that they are computed there at all.
SCORES_IN_SHORT = (
    "score/test_definitions.py",
    "score/verdicts/test_judge_behaviour.py",
    "score/hangs/test_judge.py",
)
OWN_TESTS = (*OF_THE_CLIENT, *SCORES_IN_SHORT, "recordings")
BY_NIGHT = ("score", "simulate")
OLD_SERVERS = ("ingest/test_otlp_http.py", "ingest/test_codings.py", "ingest/test_grpc_frames.py")
# What touches private and young parts of torch: DCP with its process and stagers, FSDP2, DDP's
# logger, the flight recorder, torchelastic's agent.
OF_TORCH = (
    "doctor/test_torch_parts.py",
    "checkpoint/test_copying.py",
    "checkpoint/test_writer_process.py",
    "checkpoint/test_ranks.py::test_a_sharded_model_is_restored_bit_for_bit",
    "checkpoint/test_ranks.py::test_another_number_of_ranks_restores_the_same",
    "client/test_checkpoints.py",
    "client/test_flight_recorder.py",
    "client/test_torch_versions.py",
    "client/test_ddp_logger.py",
    "client/test_ddp_numbers.py",
    "launcher/test_elastic.py",
)
OF_TORCH_BY_NIGHT = (
    "checkpoint/test_folder.py",
    "checkpoint/test_kills.py",
    "client/test_compiled.py",
    "client/test_ddp_trainings.py",
    "client/test_collective_trainings.py",
    "launcher/test_launch.py",
)
# That a collector and each verb run at all.
COLLECTOR_IN_SHORT = ("cli/test_main.py", "collector/test_cli_collector.py")


@dataclass(frozen=True)
class Environment:
    """One row of the table.

    Attributes:
        name: of the row.
        python: which interpreter, "3.10".
        constraints: file with the exact versions.
        own_tests: which of the package's own tests run there, as far as they need no torch.
        by_night: which run beside them with `make nightly`.
        collector_tests: which run with the extras, installed after the base; empty: no extras.
        collector_by_night: which run beside those.
        torch: its version, if one is installed, with which ``OF_TORCH`` runs.
        is_offline: whether the base comes from a folder of wheels, with no index.
        is_nightly: whether only `make nightly` tries it.
    """

    name: str
    python: str
    constraints: Path
    own_tests: tuple[str, ...] = OWN_TESTS
    by_night: tuple[str, ...] = ()
    collector_tests: tuple[str, ...] = ()
    collector_by_night: tuple[str, ...] = ()
    torch: str = ""
    is_offline: bool = False
    is_nightly: bool = False


TABLE = (
    Environment(
        "oldest",
        "3.10",
        HERE / "oldest.txt",
        by_night=BY_NIGHT,
        collector_tests=("cli", "collector/test_cli_collector.py", *OLD_SERVERS),
        collector_by_night=("ingest",),
    ),
    # Its packages are 5 GB, CUDA's among them: for x86-64 there is no smaller one.
    Environment("torch", "3.11", NEWEST, own_tests=(), torch="2.14.1"),
    # The own tests run in a development environment too, and that is the one of this row: what it
    # adds is that the extras bring all that a collector needs.
    Environment(
        "newest",
        "3.11",
        NEWEST,
        own_tests=(),
        collector_tests=COLLECTOR_IN_SHORT,
        collector_by_night=("cli",),
    ),
    # What is between the floor and the newest concerns the client, which lives beside others.
    Environment("between", "3.12", HERE / "between.txt", own_tests=OF_THE_CLIENT, is_nightly=True),
    # Another Python, and the numpy with which all of score/ passes on that of the row above.
    Environment(
        "offline",
        "3.13",
        NEWEST,
        own_tests=(*OWN_TESTS, "simulate"),
        is_offline=True,
        is_nightly=True,
    ),
)
PYTHONS = tuple(sorted({e.python for e in TABLE}))


@dataclass(frozen=True)
class Step:
    """A command that ran: exit code and everything it printed."""

    name: str
    code: int
    output: str


@dataclass
class Report:
    """What happened in an environment, until a step failed.

    Attributes:
        missing: why it could not be built at all; empty if it was.
        versions: what is installed with the base package alone.
        sources: where each of these distributions came from.
    """

    missing: str = ""
    steps: dict[str, Step] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def build_wheel(folder: Path, *, left_behind: Sequence[str] = ()) -> Path:
    """The wheel of a copy of the tree: what earlier builds left behind stays out of it, except
    the files ``left_behind``, which are made up."""
    copy = folder / "source"
    shutil.copytree(
        ROOT / "otel_straggler",
        copy / "otel_straggler",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    shutil.copytree(ROOT / "cuda_ext", copy / "cuda_ext", ignore=shutil.ignore_patterns("build"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in left_behind:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("# of an earlier build\n")
    step = run("wheel", [*_pip(sys.executable), "wheel", "--no-deps", "-w", folder, copy])
    assert step.code == 0, step.output
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> dict[str, list[str]]:
    """The wheel's classifiers and requirements."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        message = message_from_bytes(archive.read(name))
    return {key: message.get_all(key, []) for key in ("Classifier", "Requires-Dist")}


def build_and_test(
    environment: Environment, wheel: Path, folder: Path, *, by_night: bool = False
) -> Report:
    """Build one environment and run everything in it, up to the first step that fails; what is
    marked ``nightly`` only ``by_night``."""
    report = Report()
    interpreter = find_python(environment.python)
    if not interpreter:
        report.missing = (
            f"no Python {environment.python} on the path or under PYENV_ROOT: it would show that "
            f"the package works there with {environment.constraints.name}"
        )
        return report
    folder.mkdir()
    for step in _steps(environment, wheel, folder, interpreter, by_night):
        report.steps[step.name] = step
        if step.code != 0:
            break
        if step.name == "install":
            _note_installed(report, folder / "installed.json")
    if environment.torch:
        shutil.rmtree(folder / "env")
    return report


def _steps(
    environment: Environment, wheel: Path, folder: Path, interpreter: str, by_night: bool
) -> Iterator[Step]:
    """The commands, run one by one as the caller asks for them."""
    marked = "" if by_night else "not nightly"
    own_tests, collector_tests = environment.own_tests, environment.collector_tests
    if by_night:
        own_tests += environment.by_night
        collector_tests += environment.collector_by_night
    yield run("venv", [interpreter, "-m", "venv", "--without-pip", folder / "env"])
    python = folder / "env" / "bin" / "python"
    # Of most packages little is imported: Python compiles that when it is.
    pip = [*_pip(python), "install", "--no-compile", "--constraint", environment.constraints]
    if environment.is_offline:
        yield from _install_offline(environment, python, wheel, folder)
    else:
        report = ["--report", folder / "installed.json"]
        yield run("install", [*pip, *report, wheel])
    yield run("conflicts", [*_pip(python), "check"])
    yield run("tools", [*pip, *TOOLS])
    yield _pytest("base", BASE_FACTS, folder, marked)
    if environment.torch:
        yield run("torch", [*pip, f"torch=={environment.torch}", *OWN_TOOLS])
        of_torch = OF_TORCH + OF_TORCH_BY_NIGHT if by_night else OF_TORCH
        yield _pytest("torch tests", of_torch, folder, marked)
    if own_tests:
        yield run("own tools", [*pip, *OWN_TOOLS])
        yield _pytest("own tests", own_tests, folder, marked)
    if collector_tests:
        yield run("extras", [*pip, f"{wheel}[collector,cli]", *COLLECTOR_TOOLS])
        yield run("conflicts with extras", [*_pip(python), "check"])
        yield _pytest("collector tests", collector_tests, folder, marked)


def _install_offline(
    environment: Environment, python: Path, wheel: Path, folder: Path
) -> Iterator[Step]:
    """First a folder of wheels, as one would carry it to a cluster; then from the folder alone."""
    house = folder / "wheelhouse"
    only_wheels = ["--only-binary", ":all:", "--constraint", environment.constraints]
    yield run("wheelhouse", [*_pip(python), "download", *only_wheels, "-d", house, wheel])
    nowhere = "http://127.0.0.1:9"  # whoever tries to fetch anything fails
    env = {k: v for k, v in _outside().items() if not k.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere}
    command = [*_pip(python), "install", "--no-index", "--find-links", house, "--no-cache-dir"]
    yield run("install", [*command, "--report", folder / "installed.json", "otel-straggler"], env)


def _pytest(name: str, tests: Sequence[str], folder: Path, marked: str) -> Step:
    """Tests of ours with the environment's own pytest, from outside of the source tree."""
    env = _outside() | {"HYPOTHESIS_PROFILE": "neighbours", "OTEL_STRAGGLER_TEST_DOSE": "few"}
    options = ["-q", "--strict-markers", "--import-mode=importlib", "-p", "no:cacheprovider"]
    command = [
        *(folder / "env" / "bin" / "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT),
        *("-o", f"addopts={' '.join(options)}", "-m", marked),
        *(ROOT / "tests" / test for test in tests),
    ]
    return run(name, command, env)


def run(name: str, command: Sequence[str | Path], env: dict[str, str] | None = None) -> Step:
    """Run a command to its end, outside of the source tree, and keep what it says."""
    done = subprocess.run(
        command,
        env=_outside() if env is None else env,
        cwd=tempfile.gettempdir(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    return Step(name, done.returncode, done.stdout)


def _outside() -> dict[str, str]:
    """The process's environment without what leads Python or pip back to the source tree."""
    return {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "CI"}}


def _pip(python: str | Path) -> list[str | Path]:
    """This process's pip, at work in another environment: that one then needs none of its own."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", *quiet, "--python", python]


def _note_installed(report: Report, path: Path) -> None:
    for item in json.loads(path.read_text())["install"]:
        name = item["metadata"]["name"].lower()
        report.versions[name] = item["metadata"]["version"]
        report.sources[name] = item["download_info"]["url"]


@cache
def find_python(version: str) -> str:
    """An interpreter of that version, on the path or kept by pyenv; empty if there is none."""
    on_path = shutil.which(f"python{version}") or ""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(map(str, root.glob(f"{version}.*/bin/python3")), reverse=True)
    for candidate in filter(None, (sys.executable, on_path, *kept)):
        if _version_of(candidate) == version:
            return candidate
    return ""


def _version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()
