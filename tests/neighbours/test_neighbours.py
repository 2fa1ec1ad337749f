"""The package beside old and new libraries, on every Python that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from environments import PYTHONS, ROOT, TABLE, Environment, Report, build_and_test, metadata_of
from packaging.requirements import Requirement
from packaging.version import Version

from otel_straggler.torch_parts import TESTED

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(2_000)]
AT_ONCE = 2
Reports = dict[str, Future[Report]]


def only_where(claim: str) -> pytest.MarkDecorator:
    rows = [e for e in TABLE if not claim or getattr(e, claim)]
    marked = [pytest.param(e, marks=[pytest.mark.nightly] * e.is_nightly, id=e.name) for e in rows]
    return pytest.mark.parametrize("environment", marked)


each_environment = only_where("")


@pytest.fixture(scope="module")
def reports(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Reports]:
    """Some are built at once, so that waiting in one is work in another; those of `make nightly`
    only where it asks for them."""
    folder = tmp_path_factory.mktemp("environments")
    is_nightly = any(item.get_closest_marker("nightly") for item in request.session.items)
    tried = [e for e in TABLE if is_nightly or not e.is_nightly]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            e.name: pool.submit(build_and_test, e, wheel, folder / e.name, by_night=is_nightly)
            for e in tried
        }


def report_of(environment: Environment, reports: Reports) -> Report:
    """Wait for it. A missing interpreter is a failure under CI, else a skip."""
    report = reports[environment.name].result()
    if report.missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(report.missing)
    return report


def check(report: Report, name: str) -> None:
    """The step ran and went well; if not, here is what it printed."""
    step = report.steps.get(name)
    if step is None:
        pytest.fail(f"not reached: {list(report.steps)[-1]!r} failed", pytrace=False)
    if step.code != 0:
        pytest.fail(step.output, pytrace=False)


@each_environment
@pytest.mark.parametrize("step", ["venv", "install", "conflicts", "tools", "base"])
def test_the_base_package_works_alone(
    reports: Reports, environment: Environment, step: str
) -> None:
    """It installs, pip finds no conflict, and it keeps to base_facts.py."""
    check(report_of(environment, reports), step)


@only_where("own_tests")
def test_the_own_tests_pass(reports: Reports, environment: Environment) -> None:
    """Of the client, the scores, the wire and the files, as far as they need no torch."""
    check(report_of(environment, reports), "own tests")


@only_where("torch")
@pytest.mark.parametrize("step", ["torch", "torch tests"])
def test_what_is_private_of_torch_is_used_with_the_newest(
    reports: Reports, environment: Environment, step: str
) -> None:
    """The development environment has the other torch that is tested."""
    check(report_of(environment, reports), step)


def test_every_torch_that_is_said_to_be_tested_is() -> None:
    """One in the development environment, the others here."""
    makefile = (ROOT / "Makefile").read_text()
    (own,) = re.findall(r"^TORCH := torch==(\S+)$", makefile, re.MULTILINE)
    assert sorted([own, *(e.torch for e in TABLE if e.torch)]) == sorted(TESTED)


@only_where("collector_tests")
@pytest.mark.parametrize("step", ["extras", "conflicts with extras", "collector tests"])
def test_the_collector_and_the_command_line_work(
    reports: Reports, environment: Environment, step: str
) -> None:
    """With the oldest extras and with the newest."""
    check(report_of(environment, reports), step)


def test_the_oldest_environment_has_the_floor_of_every_range(reports: Reports, wheel: Path) -> None:
    """So what pyproject.toml promises is what was tried."""
    report = report_of(TABLE[0], reports)
    needed = [Requirement(r) for r in metadata_of(wheel)["Requires-Dist"]]
    base = {r.name: r for r in needed if r.marker is None}
    floors = {name: floor_of(r) for name, r in base.items()}
    assert floors == {name: Version(report.versions[name]) for name in base}


@pytest.mark.parametrize("extra", ["collector", "cli"])
def test_the_oldest_constraints_hold_the_floor_of_every_extra(wheel: Path, extra: str) -> None:
    """The same of what the collector and the command line need."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", TABLE[0].constraints.read_text(), re.MULTILINE))
    needed = [Requirement(r) for r in metadata_of(wheel)["Requires-Dist"]]
    of_extra = [r for r in needed if r.marker and r.marker.evaluate({"extra": extra})]
    assert of_extra
    assert {r.name: floor_of(r) for r in of_extra} == {
        r.name: Version(pins[r.name]) for r in of_extra
    }


def floor_of(requirement: Requirement) -> Version:
    (floor,) = (s.version for s in requirement.specifier if s.operator == ">=")
    return Version(floor)


def test_libraries_differ_between_environments(reports: Reports) -> None:
    """Both generations of numpy, and protobuf's version 4 and the newest."""
    result = [report_of(e, reports).versions for e in TABLE if not e.is_nightly]
    assert {Version(v["numpy"]).major for v in result} == {1, 2}
    assert {Version(v["protobuf"]).major for v in result} == {4, 7}


@pytest.mark.nightly
def test_what_is_between_is_between(reports: Reports) -> None:
    """Neither the oldest nor the newest protobuf."""
    (between,) = (e for e in TABLE if e.name == "between")
    assert Version(report_of(between, reports).versions["protobuf"]).major == 5


@pytest.mark.nightly
def test_nothing_is_fetched_when_it_is_installed_from_a_folder_of_wheels(
    reports: Reports,
) -> None:
    """As on a cluster without a way out; every wheel came from the folder."""
    (offline,) = (e for e in TABLE if e.is_offline)
    report = report_of(offline, reports)
    check(report, "install")
    assert "otel-straggler" in report.sources
    assert all(re.match(r"file://.*/wheelhouse/", url) for url in report.sources.values())


def test_the_classifiers_name_the_pythons_that_are_tried(wheel: Path) -> None:
    """Neither more nor fewer."""
    named = re.findall(r"Python :: (3\.\d+)", " ".join(metadata_of(wheel)["Classifier"]))
    assert tuple(sorted(named)) == PYTHONS
