"""What the launcher settles before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_straggler.errors import ConfigError
from otel_straggler.launcher.options import parse_options
from otel_straggler.launcher.plan import FINISHED_FLAG, LaunchPlan, log_options, make_plan

pytest.importorskip("torch.distributed.run")


@pytest.fixture
def plan_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """The plan of a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def plan(line: str, **env: str) -> LaunchPlan:
        return make_plan(parse_options(line.split()), env)

    return plan


def test_logs_and_marker_are_in_one_folder_named_after_the_run(plan_of, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Without a name there is one of the script, which all jobs of the command have."""
    plan = plan_of("--until-finished train.py")
    assert plan.run_id.startswith("train-")
    assert plan.folder == tmp_path / "training-logs" / plan.run_id
    assert plan.environment[FINISHED_FLAG] == str(plan.folder / "finished")
    assert plan.environment["OTEL_STRAGGLER_RUN_ID"] == plan.run_id
    assert plan.describe().endswith(str(plan.folder))


@pytest.mark.parametrize(
    ("line", "env", "run"),
    [
        ("--nnodes 2 --rdzv-id seven train.py", {}, "seven"),
        ("--nnodes 2 train.py", {"SLURM_JOB_ID": "7"}, "slurm-7"),
        ("train.py", {"OTEL_STRAGGLER_RUN_ID": "own", "SLURM_JOB_ID": "7"}, "own"),
        ("--nnodes 2 train.py", {}, ""),
    ],
)
def test_the_run_has_the_name_that_its_ranks_would_find(  # type: ignore[no-untyped-def]
    plan_of, line: str, env: dict[str, str], run: str
) -> None:
    """Nodes without any agree on one when they meet."""
    assert plan_of("--until-finished " + line, **env).run_id == run


def test_a_marker_and_a_folder_that_somebody_names_are_used(plan_of, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    plan = plan_of("--until-finished --log-dir logs train.py", FAULT_TOL_FINISHED_FLAG_FILE="done")
    assert plan.folder == tmp_path / "logs"
    assert plan.finished_flag == tmp_path / "done"


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_starts(  # type: ignore[no-untyped-def]
    plan_of, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--log-dir.*Name another one"):
        plan_of("--until-finished --log-dir file/logs train.py")


def test_a_wrong_setting_of_the_agent_is_an_error_before_anything_starts(plan_of) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="rank_hartbeat_timeout"):
        plan_of("--ft-param-rank_hartbeat_timeout=3 train.py")


def test_ranks_of_a_new_attempt_get_a_store_of_their_own_unless_somebody_wants_it_shared(  # type: ignore[no-untyped-def]
    plan_of,
) -> None:
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    assert plan_of("--until-finished train.py").environment[name] == "1"
    assert plan_of("--until-finished train.py", **{name: "0"}).environment[name] == "0"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train.py", ("--log-dir", "F", "--tee", "3")),
        ("--log-dir x train.py", ("--tee", "3")),
        ("--log-dir x --redirects 3 train.py", ()),
        ("-t 0:2 train.py", ("--log-dir", "F")),
    ],
)
def test_what_ranks_print_is_kept_unless_somebody_says_how(
    line: str, expected: tuple[str, ...]
) -> None:
    assert log_options(parse_options(line.split()), Path("F")) == expected
