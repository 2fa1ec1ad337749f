"""Installed packages against the supported range."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

from otel_straggler.doctor.versions import (
    EXTRAS,
    REQUIRED,
    Extra,
    check_extra,
    check_package,
    check_python,
    check_torch,
    check_versions,
    release,
)

PYPROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")


def test_this_installation_is_fine() -> None:
    """All that the package needs is here, and new enough."""
    statuses = {finding.id: finding.status for finding in check_versions()}
    assert statuses["versions.python"] == "ok"
    assert all(statuses[f"versions.{name}"] == "ok" for name in REQUIRED)


def test_an_old_python_is_a_problem() -> None:
    """With one to use instead."""
    finding = check_python((3, 9, 18))
    assert (finding.status, finding.value) == ("problem", "3.9.18")
    assert "python3.10" in finding.remedy


@pytest.mark.parametrize(
    ("result", "status"),
    [(None, "problem"), ("1.23.9", "problem"), ("1.24", "ok"), ("2.4.6", "ok")],
)
def test_a_package_below_the_range_is_a_problem(result: str | None, status: str) -> None:
    """Or one that is not there; the remedy is a command."""
    finding = check_package("numpy", "1.24", result)
    assert finding.status == status
    assert finding.remedy == ("" if status == "ok" else "pip install --upgrade 'numpy>=1.24'")


def test_a_missing_torch_is_no_problem() -> None:
    """A collector's host has none."""
    assert check_torch(None).status == "info"
    assert check_torch("2.13.0").status == "ok"


def test_a_missing_extra_says_what_it_is_for() -> None:
    """And how to get it."""
    finding = check_extra("grpc", Extra("gRPC", {"no-such-package-at-all": "1", "numpy": "1"}))
    assert (finding.status, finding.value) == ("info", ["no-such-package-at-all"])
    assert finding.remedy == "pip install 'otel-straggler[grpc]'"
    assert "needed for gRPC only" in finding.sentence


def test_the_ranges_are_those_of_the_package() -> None:
    """What the doctor demands is what pip installs."""
    project = tomllib.loads(PYPROJECT)["project"]
    assert floors(project["dependencies"]) == REQUIRED
    extras = project["optional-dependencies"]
    assert {name: floors(extras[name]) for name in EXTRAS} == {
        name: extra.packages for name, extra in EXTRAS.items()
    }


def floors(requirements: list[str]) -> dict[str, str]:
    """The oldest version by package."""
    read = (re.match(r"([A-Za-z0-9-]+)>=([0-9.]+)", each) for each in requirements)
    return {result[1]: result[2] for result in read if result}


def test_versions_compare_by_number() -> None:
    """Not by letter."""
    assert release("1.100") > release("1.24")
    assert release("rubbish") == ()
