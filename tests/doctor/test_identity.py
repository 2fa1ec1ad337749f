"""Who a process would be, and who says so."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_straggler.doctor.findings import Finding
from otel_straggler.doctor.identity import check_identity, find_identity

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
AT = {"MASTER_ADDR": "a", "MASTER_PORT": "1"}


def looked_at(env: Mapping[str, str]) -> dict[str, Finding]:
    return {f.id.partition(".")[2]: f for f in check_identity(find_identity(env), env)}


@pytest.mark.parametrize(
    ("env", "run_id", "where"),
    [
        ({"OTEL_STRAGGLER_RUN_ID": "x", "SLURM_JOB_ID": "7"}, "x", "OTEL_STRAGGLER_RUN_ID"),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, "slurm-7-1", "SLURM_JOB_ID"),
        ({"RAY_JOB_ID": "01"}, "ray-01", "RAY_JOB_ID"),
        ({"KUBEFLOW_TRAINING_JOB_ID": "k"}, "k8s-k", "KUBEFLOW_TRAINING_JOB_ID"),
        ({"TORCHELASTIC_RUN_ID": "r"}, "r", "TORCHELASTIC_RUN_ID"),
    ],
)
def test_the_run_id_comes_with_who_said_it(env: dict[str, str], run_id: str, where: str) -> None:
    """Which of several variables decided."""
    finding = looked_at({**TORCHRUN, **env})["run_id"]
    assert (finding.status, finding.value) == ("ok", run_id)
    assert finding.sentence.endswith(f"from {where}.")


def test_a_hash_on_one_node_is_fine_and_on_several_a_warning() -> None:
    """There it does not know when the launcher was started."""
    assert looked_at({**TORCHRUN, **AT})["run_id"].status == "ok"
    finding = looked_at({**TORCHRUN, **AT, "WORLD_SIZE": "16"})["run_id"]
    assert finding.status == "warning"
    assert finding.remedy.startswith("export OTEL_STRAGGLER_RUN_ID=")


def test_ranks_of_a_run_without_a_name_are_a_problem() -> None:
    """Each would report a run of its own."""
    finding = looked_at(TORCHRUN)["run_id"]
    assert finding.status == "problem"
    assert finding.remedy.startswith("export OTEL_STRAGGLER_RUN_ID=")


def test_outside_of_a_job_nothing_is_wrong() -> None:
    """It is said, though, what a process would get."""
    result = looked_at({})
    assert {f.status for f in result.values()} == {"info"}
    assert "random name" in result["run_id"].sentence
    assert "rank 0 of 1" in result["rank"].sentence


def test_rank_world_and_attempt_come_with_who_said_them() -> None:
    """From torchrun, or from Slurm."""
    finding = looked_at({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"})["rank"]
    assert finding.value == {"rank": 3, "world_size": 8, "local_rank": 1, "attempt": 2}
    assert "rank 3 (RANK), world_size 8 (WORLD_SIZE)" in finding.sentence
    finding = looked_at({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"})["rank"]
    assert "rank 3 (SLURM_PROCID), world_size 8 (SLURM_NTASKS)" in finding.sentence


def test_a_rank_without_a_world_is_a_warning() -> None:
    """Nobody can be missed."""
    finding = looked_at({"RANK": "3"})["rank"]
    assert finding.status == "warning"
    assert "WORLD_SIZE" in finding.remedy


def test_a_rank_that_is_no_number_is_a_warning() -> None:
    """It counts as not set."""
    finding = looked_at({"RANK": "zero"})["rank_text"]
    assert (finding.status, finding.remedy) == ("warning", "unset RANK")


def test_role_and_job_come_with_who_said_them() -> None:
    """Or with what they are by default."""
    result = looked_at({"OTEL_STRAGGLER_ROLE": "actor", "OTEL_SERVICE_NAME": "ppo"})
    assert result["role"].sentence == "The role is 'actor', from OTEL_STRAGGLER_ROLE."
    assert result["job"].sentence == "The job is called 'ppo', from OTEL_SERVICE_NAME."
    result = looked_at({"OTEL_RESOURCE_ATTRIBUTES": "service.name=llm"})
    assert (result["role"].value, result["job"].value) == ("default", "llm")


def test_no_token_is_left_in_the_store_of_torch() -> None:
    """The doctor only looks: a token that is there is read, and none is put there."""
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        finding = looked_at({})["run_id"]
        assert (finding.status, finding.value) == ("info", None)
        default = distributed.distributed_c10d._get_default_store()
        assert not default.check(["otel_straggler/run_id"])
        default.set("otel_straggler/run_id", "run-1")
        assert looked_at({})["run_id"].value == "run-1"
    finally:
        distributed.destroy_process_group()
