"""Which windows are of the same work: what a rank may be compared with is its past in that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.scores import references as references_module
from otel_straggler.detect.scores.lineages import Lineages, costs_of
from otel_straggler.detect.scores.references import References, ReferenceSet
from otel_straggler.errors import InputError
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source

SMALL, REAL = {"\0forward": 0.1, "\0backward": 0.2}, {"\0forward": 0.9, "\0backward": 1.6}
ENOUGH = np.array([[True]])


def source(run_id: str, attempt: int = 0, job: str = "job", group: str = "") -> Source:
    return Source(run_id=run_id, job=job, group=group, attempt=attempt, rank=0)


def scaled(costs: dict[str, float], factor: float) -> dict[str, float]:
    return {name: cost * factor for name, cost in costs.items()}


def settled(lineages: Lineages, run_id: str, *costs: dict[str, float], attempt: int = 0) -> str:
    """The lineage of an attempt after windows with these costs."""
    for number, each in enumerate(costs):
        name, _ = lineages.follow(source(run_id, attempt), "", each, number)
    return name


def test_a_run_goes_on_in_its_later_attempts_and_in_the_next_run_of_the_job() -> None:
    """At once, where its sections cost what they cost before."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    assert settled(lineages, "a", scaled(REAL, 1.1), attempt=1) == first
    assert settled(lineages, "b", scaled(REAL, 0.9)) == first


@pytest.mark.parametrize("other", [source("c", job="other"), source("c", group="critic")])
def test_another_job_or_group_has_lineages_of_its_own(other: Source) -> None:
    """Whatever its sections cost."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    assert lineages.follow(other, "", REAL, 2)[0] != first


def test_another_configuration_starts_over_and_the_earlier_one_is_kept() -> None:
    """Small, real, then small again; one section that costs more is another configuration."""
    lineages = Lineages()
    small = settled(lineages, "small", SMALL, SMALL)
    real = settled(lineages, "real", REAL, REAL)
    longer = settled(lineages, "longer", *[{**REAL, "\0forward": 1.3}] * 2)
    assert len({small, real, longer}) == 3
    assert settled(lineages, "small again", SMALL) == small


def test_an_attempt_that_warms_up_is_known_once_it_is_warm() -> None:
    """What it has learned until then goes along."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    for number, factor in enumerate((3.0, 1.5)):
        name, before = lineages.follow(source("a", 1), "", scaled(REAL, factor), number)
        assert name == before != first
    own = name
    assert lineages.follow(source("a", 1), "", scaled(REAL, 1.05), 3) == (first, own)
    assert lineages.follow(source("a", 1), "", scaled(REAL, 3.0), 4) == (first, first)


def test_an_attempt_that_never_becomes_steady_is_its_own_after_five_windows() -> None:
    """So that the next one is compared with something."""
    lineages = Lineages()
    unsteady = [scaled(REAL, 2.0**n) for n in (0, 1, 0, 1, 0)]
    name = settled(lineages, "a", *unsteady)
    assert settled(lineages, "b", REAL) == name


def test_sections_that_cost_little_and_new_ones_do_not_count() -> None:
    """A logger that takes twice as long is no other configuration; nor is a section more."""
    lineages = Lineages()
    first = settled(lineages, "a", *[{**REAL, "\0log": 0.01}] * 2)
    assert settled(lineages, "b", {**REAL, "\0log": 0.05, "\0eval_hook": 0.02}) == first


def test_work_is_another_if_most_of_it_cannot_be_compared() -> None:
    """Sections with other names."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    assert settled(lineages, "b", {"\0forward": 0.9, "\0loss": 2.0}) != first


def test_what_a_section_costs_is_the_median_over_the_ranks_of_a_role() -> None:
    """A slow rank changes nothing, and loading of data counts only where there is nothing else."""
    sources = [Source(run_id="r", rank=rank, role="a" if rank < 3 else "b") for rank in range(4)]
    sections = [Section("load", "data"), Section("forward"), Section("wait", "wait")]
    step_s = np.array([[1.0, 2.0, 9.0], [1.0, 2.0, 9.0], [1.0, 8.0, 9.0], [1.0, 5.0, np.nan]])
    assert costs_of(sources, sections, step_s) == {"a\0forward": 2.0, "b\0forward": 5.0}
    assert costs_of(sources, sections[:1], step_s[:, :1]) == {"a\0load": 1.0, "b\0load": 1.0}


def test_lineages_go_on_after_a_restart() -> None:
    """Attempts that were settled stay so; a state of another kind changes nothing."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    later = Lineages()
    later.restore(lineages.state())
    assert later.follow(source("a"), "", scaled(REAL, 9.0), 5) == (first, first)
    assert settled(later, "b", REAL) == first
    for wrong in ({}, {"known": [["job"]], "settled": []}, {"known": 1, "settled": []}):
        with pytest.raises(InputError, match="lineages"):
            later.restore(wrong)
    assert settled(later, "c", REAL) == first


@pytest.mark.parametrize("is_full", [False, True])
def test_the_configurations_used_last_are_kept(is_full: bool, monkeypatch: Any) -> None:
    """Those that were not used for longest are dropped with their references: of a job beyond 64,
    and a quarter where memory is full."""
    if is_full:
        monkeypatch.setattr(references_module, "MAX_SUBJECTS", 40)
    references = ReferenceSet.empty(3600.0)
    for number in range(65):
        costs = scaled(REAL, 1.3**number)
        for _ in range(2):
            lineage = references.lineage_of(source(f"run-{number}"), "", costs, number)
            subjects = [(lineage, "gpu")]
            references.sections.update(subjects, ["f"], np.array([[1.0]]), ENOUGH, number)
    kept = references.sections.state()["subjects"][0]
    assert len(kept) < 50 if is_full else len(kept) == 64
    assert not any("run-0\0" in name for name in kept)
    assert any("run-64\0" in name for name in kept)
    another = references.lineage_of(source("again"), "", REAL, 100)
    assert "again" in another


def test_who_was_taken_for_the_same_as_an_attempt_goes_along_with_it() -> None:
    """Two runs begin while both warm up; later both turn out to be of an earlier lineage."""
    lineages = Lineages()
    first = settled(lineages, "a", REAL, REAL)
    warming = scaled(REAL, 2.0)
    one, _ = lineages.follow(source("b"), "", warming, 3)
    assert lineages.follow(source("c"), "", warming, 3)[0] == one != first
    assert lineages.follow(source("b"), "", REAL, 4) == (first, one)
    assert lineages.follow(source("c"), "", REAL, 4) == (first, first)


def test_what_an_attempt_has_learned_joins_its_lineage() -> None:
    """Of two bests the better one stays, and rows are used again."""
    references = References(half_life_s=1e300)
    for lineage, gpu, best_s in (
        ("a", "x", 2.0),
        ("a", "y", 1.0),
        ("b", "x", 1.5),
        ("b", "z", 3.0),
    ):
        references.update([(lineage, gpu)], ["f"], np.array([[best_s]]), ENOUGH, 7 * 10**9)
    references.join("b", "a")
    subjects = [("a", "x"), ("a", "y"), ("a", "z")]
    best_s, at_s = references.bests(subjects, ["f"])
    assert (best_s[:, 0].tolist(), at_s[:, 0].tolist()) == ([1.5, 1.0, 3.0], [7.0, 7.0, 7.0])
    references.update([("c", "w")], ["f"], np.array([[5.0]]), ENOUGH, 8 * 10**9)
    assert references.bests(subjects, ["f"])[0][:, 0].tolist() == [1.5, 1.0, 3.0]
    references.drop("a")
    assert references.state()["subjects"] == [["c"], ["w"]]


def test_references_of_an_earlier_version_are_left_out() -> None:
    """They are of any work."""
    references = ReferenceSet.empty(3600.0)
    old = References(3600.0)
    old.update([("job", "", "", "node", 0)], ["f"], np.array([[1.0]]), ENOUGH, 0)
    references.restore({"sections": old.state()})
    assert references.sections.state()["subjects"] == []
