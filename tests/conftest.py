"""What all tests share: how many random examples are tried.

Sixty, others each time; in CI forty, the same each time, and by night a hundred. `make fuzz`
tries very many (HYPOTHESIS_PROFILE=fuzz; FUZZ_EXAMPLES for another number than 20,000), and
`make neighbours` few in each environment.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code import code
from hypothesis import HealthCheck, settings

from .by_hand import ByHand
from .native.fake_cuda import FakeCuda
from .native.fake_cuda import build as build_driver
from .native.fake_cupti import FakeGpu, build
from .servers.chromium import Contexts, Pages, running_chromium
from .servers.postgres import Postgres

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# gRPC reads it when it is loaded, and the client refuses a gRPC that was loaded without it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "test", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# CI tries the same examples each time; others are found where one can look at them.
settings.register_profile(
    "ci", settings.get_profile("test"), max_examples=40, derandomize=True, database=None
)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=100)
settings.register_profile("neighbours", settings.get_profile("ci"), max_examples=25)
settings.register_profile(
    "fuzz",
    settings.get_profile("test"),
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000")),
)
_USUAL = "ci" if os.environ.get("CI") else "test"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _USUAL))


@pytest.fixture(scope="session", autouse=True)
def _no_process_group_to_come() -> Iterator[None]:
    """Tests import torch for each other: what one of them records does not wait for a process group
    that nobody will initialise. Where it matters, a test starts a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("otel_straggler.client.startup.may_be_initialised_later", lambda: False)
        yield


@pytest.fixture(autouse=True)
def _nothing_stays_watched() -> Iterator[None]:
    """A model that a test, or code of a page, watches and keeps has sections in the next test."""
    yield
    handle = sys.modules.get("otel_straggler.client.watch.handle")
    while handle is not None and handle.WATCHING._watched:
        handle.WATCHING._forget(next(iter(handle.WATCHING._watched.values())))


_REMEDIES = (
    ("could not import", "run 'make dev', which installs it"),
    ("is not installed:", "run 'make dev', which installs it"),
    ("extension", "run 'make dev', which builds it with a C++ compiler"),
)
"""How to have what a skip says is absent."""


def _add_remedy(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        remedy = next((text for sign, text in _REMEDIES if sign in reason), "")
        report.longrepr = path, line, f"{reason} ({remedy})" if remedy else reason


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _add_remedy(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _add_remedy(report)
    return report


def _parse_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def range_of(*args: Any, **more: Any) -> Any:
        try:
            return original(*args, **more)
        except SystemError as error:
            raise SyntaxError(str(error)) from error

    return range_of


def _without_hanging_up(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def handle_error(*args: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            original(*args)

    return handle_error


def pytest_configure() -> None:
    """Python 3.11 refuses to parse while another thread does ("AST constructor recursion depth
    mismatch"): a test that fails then would end its process of pytest-xdist, and the run. Of source
    that cannot be parsed pytest shows the line alone.

    A stand-in for a server whose caller hung up would write a traceback into what some other test
    reads of its own process.
    """
    code.getstatementrange_ast = _parse_alone(code.getstatementrange_ast)
    BaseServer.handle_error = _without_hanging_up(BaseServer.handle_error)  # type: ignore[method-assign]


_TOGETHER = ("detector",)
"""Folders whose files share processes with PyTorch, which take longer to start than to use."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several processes (`--dist loadfile`) one runs all of a file, or of such a folder."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            return folder if folder.rpartition("/")[2] in _TOGETHER else file

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


UNSTEADY_ALLOWED = 3
"""Tests of a run that may pass at the second try alone (`--reruns`): on a machine that is busy with
something else one of eleven thousand does. More of them are a defect."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More than a few tests that pass at the second try alone are a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if len(_first_tries(reporter)) > UNSTEADY_ALLOWED and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Why each of them failed at its first try."""
    for report in _first_tries(terminalreporter):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)


def _first_tries(reporter: Any) -> list[pytest.TestReport]:
    return [] if reporter is None else list(reporter.stats.get("rerun", ()))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a thread of some other test logs can be half a surrogate pair. A process that cannot
    send its report ends, and all tests with it."""
    return _as_sent((yield))


def _as_sent(value: Any) -> Any:
    """The same, of nothing but what can be sent to another process."""
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    if type(value) in (bool, int, float, bytes, type(None)):
        return value
    if isinstance(value, Mapping):
        return {_as_sent(key): _as_sent(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_sent(inner) for inner in value]
    if isinstance(value, tuple):  # why it is skipped
        return tuple(_as_sent(inner) for inner in value)
    return ascii(value)


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads take turns thousands of times more often than they do otherwise: what two of them
    must not do at the same time, they do within a second."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)


@pytest.fixture(scope="session")
def by_hand() -> type[ByHand]:
    """Verdicts and summaries made by hand."""
    return ByHand


@pytest.fixture(scope="session")
def build_fake() -> Callable[..., Path]:
    """Compiles the fake libcupti under a name of one's own."""
    return build


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    """The fake libcupti; one for all tests, because a library that is loaded stays."""
    return FakeGpu(build(tmp_path_factory.mktemp("cupti")))


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """The fake CUDA driver, likewise."""
    return FakeCuda(build_driver(tmp_path_factory.mktemp("cuda")))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL; without one a skip, under CI a failure."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def database(postgres: Postgres) -> Postgres:
    """The same, empty."""
    postgres.clear()
    return postgres


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A running headless Chromium; without one a skip, under CI a failure."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def kept_contexts(chromium: Browser) -> Contexts:
    """Contexts of the running Chromium that go from test to test."""
    return Contexts(chromium)


@pytest.fixture
def open_page(
    chromium: Browser, kept_contexts: Contexts, request: pytest.FixtureRequest
) -> Iterator[Pages]:
    """Opens pages; at the end none of them may have had an error or asked another origin."""
    failed_before = request.session.testsfailed
    pages = Pages(chromium, request.node.name, kept_contexts)
    yield pages
    trouble = pages.close(has_failed=request.session.testsfailed > failed_before)
    assert not trouble, trouble
