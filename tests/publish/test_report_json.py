"""The report holds what scoring found, in JSON that every parser takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.views.report_json import (
    RunReport,
    dump_report,
    report_json,
    window_json,
)
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import Excess, Straggler, WindowScores
from otel_straggler.semconv import FORMAT_VERSION

NAN = np.nan
SLOW = Source(run_id="run", rank=1, node="node-1", role="actor")
SOURCES = (Source(run_id="run", rank=0, node="node-0", role="actor"), SLOW)
SECTIONS = (Section("forward"), Section("load", "data"))


def matrix(*rows: tuple[float, float]) -> Any:
    return np.array(rows, np.float64)


WINDOW = WindowScores(
    run_id="run", job="job", group="", attempt=0, first_step=20, last_step=39,
    start_ns=1, end_ns=9, n_steps=20, sources=SOURCES, sections=SECTIONS,
    section_median_s=matrix((0.1, 0.2), (0.2, NAN)),
    section_step_s=matrix((0.1, 0.2), (0.2, NAN)),
    section_own_s=matrix((0.1, 0.2), (0.2, NAN)),
    section_count=np.array([[20, 20], [20, 0]]),
    section_relative=matrix((1.0, 1.0), (0.5, NAN)),
    section_individual=matrix((1.0, 1.0), (1.0, NAN)),
    section_slowdown=matrix((0.67, 1.0), (1.33, NAN)),
    gpu_relative=np.array([NAN, NAN]), gpu_individual=np.array([1.0, NAN]),
    gpu_section_relative=matrix((NAN, NAN), (NAN, NAN)),
    gpu_section_individual=matrix((NAN, NAN), (NAN, NAN)),
    stragglers=(
        Straggler(source=SLOW, section="forward", kind_of_score="section_relative", score=0.5),
        Straggler(source=SLOW, section="", kind_of_score="gpu_relative", score=0.6),
    ),
    largest_excess=Excess(
        source=SLOW, section="forward", excess_s=0.05, own_s=0.2, role_median_s=0.15
    ),
    world_size=4, missing_ranks=(2, 3), duplicates=1, superseded=2, closed_by="grace",
)  # fmt: skip


def test_scores_are_keyed_by_section_and_rank_as_text() -> None:
    """Read a score as ``window["section_relative_scores"][section][str(rank)]``."""
    window = window_json(WINDOW)
    assert window["section_relative_scores"]["forward"] == {"0": 1.0, "1": 0.5}
    assert window["section_medians_s"]["forward"] == {"0": 0.1, "1": 0.2}
    assert window["section_counts"]["load"] == {"0": 20, "1": 0}


def test_what_is_not_known_is_null() -> None:
    """A section that a rank did not run, and GPU scores without kernels, are null."""
    window = window_json(WINDOW)
    assert window["section_relative_scores"]["load"]["1"] is None
    assert window["gpu_relative_scores"] == {"0": None, "1": None}


def test_a_straggler_names_rank_node_section_and_score() -> None:
    """``rank`` is a number; ``section`` is null where the score is of the whole rank."""
    by_section, by_gpu = window_json(WINDOW)["stragglers"]
    assert by_section == {
        "rank": 1, "node": "node-1", "role": "actor", "group": "",
        "section": "forward", "kind_of_score": "section_relative", "score": 0.5,
    }  # fmt: skip
    assert by_gpu["section"] is None


def test_ranks_of_a_named_group_carry_the_group_in_their_key() -> None:
    """Two worlds of one run never share a key."""
    sources = tuple(replace(source, group="critic") for source in SOURCES)
    window = window_json(replace(WINDOW, group="critic", sources=sources))
    assert list(window["section_relative_scores"]["forward"]) == ["critic/0", "critic/1"]


def test_the_largest_excess_may_be_absent() -> None:
    """Nobody slower than the median: null."""
    assert window_json(WINDOW)["largest_excess"]["excess_s"] == 0.05
    assert window_json(replace(WINDOW, largest_excess=None))["largest_excess"] is None


def test_a_report_is_versioned_and_has_every_run() -> None:
    """Verdicts and figures of the run are there, empty, before layer 2 fills them."""
    runs = {"run": RunReport(windows=[window_json(WINDOW)]), "new": RunReport()}
    report = json.loads(dump_report(report_json(runs)))
    assert report["schema_version"] == FORMAT_VERSION
    assert report["runs"]["run"]["verdicts"] == []
    run = report["runs"]["run"]["run"]
    reported = ("slowdown", "waste", "m_w", "m_s", "cause", "resolvable_slowdown", "coverage")
    assert [run[key] for key in reported] == [None, None, None, None, None, None, 0.5]
    assert report["runs"]["new"]["windows"] == []
    assert report["runs"]["new"]["run"]["coverage"] is None


def test_clashes_and_what_was_left_out_are_in_the_report() -> None:
    """A rank claimed twice is named; spans that were not scored are counted by reason."""
    run = RunReport(windows=[window_json(WINDOW)], clashes=[SLOW], counts={"no_rank": 3})
    result = report_json({"run": run})["runs"]["run"]
    assert result["clashes"][0]["rank"] == 1
    assert result["not_scored"] == {"no_rank": 3}


def test_a_nan_never_reaches_the_text() -> None:
    """NaN is no JSON: ``dump_report`` refuses what ``window_json`` should have made null."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_report({"score": NAN})
    assert "NaN" not in dump_report(window_json(WINDOW))
