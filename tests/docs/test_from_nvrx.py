"""What the page for users of NVRx says of names, arguments and defaults is so, here and there."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from otel_straggler import detector
from otel_straggler.detector import Detector, Report, Statistic

from .pages import ROOT, blocks_of

FILE = ROOT / "docs" / "recipes" / "from-nvrx.md"
PAGE = FILE.read_text(encoding="utf-8")
PEER = "nvidia_resiliency_ext"
needs_peer = pytest.mark.skipif(
    importlib.util.find_spec(PEER) is None and not os.environ.get("CI"),
    reason="nvidia-resiliency-ext is not installed: "
    "it would show that its names and defaults are those of the page",
)


def rows(heading: str) -> Iterator[list[str]]:
    """The first table under a heading, without its head."""
    _, _, part = PAGE.partition(f"## {heading}\n")
    table = part[part.index("\n| ---") :].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def reported() -> Iterator[tuple[str, dict[str, Any]]]:
    """Callables of the page with their arguments; ``inspect.Parameter.empty`` for no default."""
    for call, arguments, _ in rows("What is the same"):
        result = {}
        for argument in re.findall(r"`([^`]+)`", arguments):
            name, _, default = argument.partition("=")
            result[name] = eval(default) if default else inspect.Parameter.empty
        yield call.strip("`"), result


def arguments_of(module: Any, call: str) -> dict[str, Any]:
    owner, _, name = call.partition(".")
    result = getattr(module, owner)
    parameters = inspect.signature(getattr(result, name) if name else result).parameters
    return {
        p.name: p.default
        for p in parameters.values()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY and p.name != "self"
    }


def public_calls() -> set[str]:
    methods = {f"Detector.{n}" for n in vars(Detector) if not n.startswith("_")}
    fields = {f"Detector.{n}" for n in Detector.__annotations__}
    classes = set(detector.__all__) - {"Detector", "Report", "Statistic"}
    return (methods - fields) | classes | {"Report.identify_stragglers"}


def test_every_call_is_in_the_table_with_its_arguments_and_defaults() -> None:
    """What is new is by keyword only, and in a table of its own."""
    assert {call for call, _ in reported()} == public_calls()
    for call, arguments in reported():
        assert arguments_of(detector, call) == arguments, call
    further = {
        p.name
        for p in inspect.signature(Detector.initialize).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    names = {
        cell.strip("`").partition("=")[0] for cell, _ in rows("Further arguments of `initialize()`")
    }
    assert names == further


@needs_peer
def test_the_table_is_true_of_nvrx() -> None:
    """Names, order and defaults of the release that the page compares with."""
    peer = importlib.import_module(f"{PEER}.straggler")
    for call, arguments in reported():
        assert list(arguments_of(peer, call).items()) == list(arguments.items()), call
    peers_fields = [field.name for field in dataclasses.fields(peer.Report)]
    ours = [field.name for field in dataclasses.fields(Report)]
    own = ["section_kinds", "kernels_age_s", "gpu_relative_missing", "gpu_individual_missing"]
    assert ours == [*peers_fields, *own]
    assert [s.name for s in peer.Statistic] == [s.name for s in Statistic]


def test_all_fields_of_a_report_and_all_statistics_are_named() -> None:
    """In the list under the table."""
    for field in dataclasses.fields(Report):
        assert f"`{field.name}`" in PAGE
    for statistic in Statistic:
        assert f"`{statistic.name}`" in PAGE


def test_only_the_import_line_changes() -> None:
    """One line of the example goes, one comes."""
    _, _, diff = PAGE.partition("```diff\n")
    lines = diff.partition("```")[0].splitlines()
    gone = [line for line in lines if line.startswith("-")]
    come = [line for line in lines if line.startswith("+")]
    assert gone == ["-from nvidia_resiliency_ext.attribution import straggler"]
    assert come == ["+from otel_straggler import detector as straggler"]
    assert come[0][1:] in blocks_of(FILE)[0].code
