"""What verdicts call a subject."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_straggler.detect.verdicts.world import (
    cause_of_section,
    host_subject,
    rank_subject,
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
