"""What verdicts call a subject."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_straggler.detect.verdicts.world import (
    cause_of_section,
    host_subject,
    rank_subject,
    rank_subjects,
    role_subject,
    run_subject,
)
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source

GPU = Source(run_id="r", rank=3, node="n1", local_rank=3, device="GPU-3f2a")


def test_a_device_keeps_its_name_when_ranks_are_renumbered() -> None:
    """And another device does not get it."""
    renumbered = replace(GPU, rank=9, attempt=4, session_id="other", world_size=64)
    assert rank_subject(renumbered) == rank_subject(GPU)
    assert rank_subject(replace(GPU, device="GPU-77")) != rank_subject(GPU)
    assert rank_subject(replace(GPU, node="n2")) != rank_subject(GPU)


def test_without_a_device_the_local_rank_tells_and_without_that_the_rank() -> None:
    """As much as is known."""
    by_index = replace(GPU, device="")
    assert rank_subject(by_index) == "rank/n1/3"
    assert rank_subject(replace(by_index, local_rank=-1)) == "rank/3"
    assert rank_subject(replace(GPU, node="")) == "rank/3"


def test_ranks_on_one_gpu_have_subjects_of_their_own() -> None:
    """With the local rank; who has a GPU alone is called as ever, in any order and after a restart
    with other rank numbers."""
    pair = [replace(GPU, rank=n, local_rank=n) for n in (0, 1)]
    alone = replace(GPU, rank=2, local_rank=2, device="GPU-77")
    names = rank_subjects([*pair, alone], set())
    assert names == ["rank/n1/GPU-3f2a#0", "rank/n1/GPU-3f2a#1", "rank/n1/GPU-77"]
    assert rank_subjects([alone, *reversed(pair)], set()) == names[::-1]
    again = [replace(each, rank=9 - each.rank, attempt=1) for each in (*pair, alone)]
    assert rank_subjects(again, set()) == names
    assert rank_subjects([replace(each, group="critic") for each in pair], set()) == [
        f"critic:{name}" for name in names[:2]
    ]


def test_ranks_on_one_gpu_keep_their_names_while_one_of_them_is_away() -> None:
    """Ranks of a restart report one after the other; a GPU that was never shared is no other."""
    pair = [replace(GPU, rank=n, local_rank=n) for n in (0, 1)]
    shared: set[str] = set()
    both = rank_subjects(pair, shared)
    assert [rank_subjects([each], shared)[0] for each in pair] == both
    assert rank_subjects([replace(GPU, device="GPU-77")], shared) == ["rank/n1/GPU-77"]


def test_what_the_local_rank_does_not_tell_apart_the_rank_does() -> None:
    """It is not known, or two launchers on a node both count from 0."""
    unknown = [replace(GPU, rank=n, local_rank=-1) for n in (0, 1)]
    assert rank_subjects(unknown, set()) == ["rank/0", "rank/1"]
    half_known = [replace(GPU, rank=0, local_rank=0), replace(GPU, rank=1, local_rank=-1)]
    assert rank_subjects(half_known, set()) == ["rank/n1/GPU-3f2a#0", "rank/1"]
    two_launchers = [replace(GPU, rank=n, local_rank=n % 2) for n in range(4)]
    assert rank_subjects(two_launchers, set()) == [f"rank/{n}" for n in range(4)]
    on_cpus = [replace(each, device="") for each in two_launchers]
    assert rank_subjects(on_cpus, set()) == [f"rank/{n}" for n in range(4)]


def test_no_name_of_a_device_makes_two_ranks_one() -> None:
    """Also one that looks like the name of a rank on another GPU."""
    devices = ["GPU-1", "GPU-1", "GPU-1#0", "GPU-1#0", "GPU-1#0#0"]
    sources = [replace(GPU, rank=n, local_rank=n % 2, device=d) for n, d in enumerate(devices)]
    assert len(set(rank_subjects(sources, set()))) == len(sources)


@pytest.mark.parametrize("group", ["", "critic"])
def test_subjects_of_different_kinds_and_groups_never_share_a_name(group: str) -> None:
    """A host called like a rank is still a host."""
    source = replace(GPU, group=group, node="", device="")
    names = {
        rank_subject(source),
        host_subject(group, "3"),
        role_subject(group, "3", "link"),
        role_subject(group, "3", "stage_imbalance"),
        run_subject(group, "link"),
    }
    assert len(names) == 5
    assert all(name.startswith("critic:") for name in names) == bool(group)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("compute", "slow_gpu"), ("data", "slow_host"), ("other", "slow_host")],
)
def test_the_kind_of_a_section_tells_the_gpu_from_the_host(kind: str, cause: str) -> None:
    """Where the whole step is slow it is the GPU."""
    assert cause_of_section(Section("s", kind)) == cause  # type: ignore[arg-type]
    assert cause_of_section(None) == "slow_gpu"
