"""Which argument of ``otel-straggler run`` belongs to whom."""

from __future__ import annotations

import pytest

from otel_straggler.errors import ConfigError
from otel_straggler.launcher.options import DEFAULT_MAX_JOBS, parse_options

pytest.importorskip("torch.distributed.run")


def test_options_of_the_agent_and_of_the_loop_are_taken_out() -> None:
    """torchrun gets its own, and the script what stands behind it."""
    line = (
        "--nnodes 2 --ft-param-rank_heartbeat_timeout=60 --until-finished --max-jobs 3 "
        "--ft-cfg-path ft.yaml -t 3 train.py --ft-x --max-jobs 9"
    )
    options = parse_options(line.split())
    assert options.torchrun == ("--nnodes", "2", "-t", "3")
    assert options.agent == ("--ft-param-rank_heartbeat_timeout=60", "--ft-cfg-path", "ft.yaml")
    assert options.target == ("train.py", "--ft-x", "--max-jobs", "9")
    assert (options.until_finished, options.max_jobs) == (True, 3)


@pytest.mark.parametrize("line", ["train.py", "--nproc-per-node 4 train.py --until-finished"])
def test_without_an_option_of_ours_nobody_stays_as_torchruns_parent(line: str) -> None:
    assert not parse_options(line.split()).is_supervised


@pytest.mark.parametrize("option", ["--ft-param-safety_factor=2", "--fault-tol-cfg-path=f"])
def test_with_an_agent_there_is_one_job_unless_more_are_asked_for(option: str) -> None:
    options = parse_options([option, "train.py"])
    assert options.is_supervised
    assert (options.until_finished, options.max_jobs) == (False, 1)


def test_the_loop_has_a_bound_that_nobody_has_to_name() -> None:
    assert parse_options(["--until-finished", "train.py"]).max_jobs == DEFAULT_MAX_JOBS


def test_abbreviated_options_of_torchrun_keep_their_value() -> None:
    """As torchrun's parser accepts them."""
    options = parse_options(["--nproc-per", "4", "--standal", "-m", "package.train"])
    assert options.torchrun == ("--nproc-per", "4", "--standal", "-m")
    assert options.target == ("package.train",)


@pytest.mark.parametrize("jobs", ["0", "-1", "two", ""])
def test_a_number_of_jobs_that_is_none_is_refused(jobs: str) -> None:
    with pytest.raises(ConfigError, match=r"--max-jobs.*whole number from 1"):
        parse_options(["--until-finished", f"--max-jobs={jobs}", "train.py"])


def test_a_number_of_jobs_without_the_loop_is_refused() -> None:
    """It would have no effect."""
    with pytest.raises(ConfigError, match="Add --until-finished"):
        parse_options(["--max-jobs", "3", "train.py"])


def test_options_of_nvrxs_launcher_are_taken_as_torchrun_means_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its functional tests give these; what torchrun has no place for is a warning."""
    line = (
        "--nproc-per-node=8 --ft-restart-policy=any-failed --term-timeout=15 --restart_policy "
        "any-failed --workers-stop-timeout 15 --ignore-missing-fault-tol-cfg train.py"
    )
    options = parse_options(line.split())
    assert options.target == ("train.py",)
    assert options.agent == ("--ft-restart-policy=any-failed",)
    assert options.torchrun[0] == "--nproc-per-node=8"
    assert set(options.torchrun[1:]) <= {"--shutdown-timeout=15"}
    warned = [r.getMessage().split()[0] for r in caplog.records]
    late = [] if options.torchrun[1:] else ["--term-timeout"]
    others = ["--restart_policy", "--workers-stop-timeout", "--ignore-missing-fault-tol-cfg"]
    assert warned == [*late, *others]
