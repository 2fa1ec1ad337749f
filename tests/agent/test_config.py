"""Configuration of the rank monitor."""

from __future__ import annotations

import argparse
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.errors import ConfigError, UnavailableError


def written(folder: Path, text: str) -> Path:
    path = folder / "ft.yaml"
    path.write_text(text)
    return path


def test_fields_are_given_by_name_and_have_defaults() -> None:
    its = FaultToleranceConfig.from_kwargs(rank_heartbeat_timeout=30, safety_factor=3)
    assert (its.rank_heartbeat_timeout, its.safety_factor) == (30.0, 3.0)
    assert (its.initial_rank_heartbeat_timeout, its.rank_out_of_section_timeout) == (3_600.0, None)
    assert (its.timeout_action, its.rank_termination_signal) == ("observe", signal.SIGKILL)


@pytest.mark.parametrize(
    "text",
    [
        "fault_tolerance: {rank_heartbeat_timeout: 7}",
        "trainer: {callbacks: [{a: 1}, {fault_tolerance: {rank_heartbeat_timeout: 7}}]}",
        '{"deep": {"er": {"fault_tolerance": {"rank_heartbeat_timeout": 7}}}}',
    ],
)
def test_the_section_of_a_file_is_found_at_any_depth(tmp_path: Path, text: str) -> None:
    its = FaultToleranceConfig.from_yaml_file(written(tmp_path, text))
    assert its.rank_heartbeat_timeout == 7.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1", "got 'none'; expected one section 'fault_tolerance'"),
        ("a: {fault_tolerance: {}}\nb: {fault_tolerance: {}}", "2 sections 'fault_tolerance'"),
        ("fault_tolerance: 5", "expected a mapping of settings"),
        ("fault_tolerance: {rank_hartbeat_timeout: 5}", "Did you mean rank_heartbeat_timeout?"),
        ("fault_tolerance: {workload_check_intervall: 5}", "Did you mean workload_check_interval?"),
        ("fault_tolerance: {rank_heartbeat_timeout: soon}", "seconds above 0, or null for never"),
        ("fault_tolerance: {rank_heartbeat_timeout: -1}", "seconds above 0"),
        ("fault_tolerance: {rank_section_timeouts: [step]}", "names of sections with seconds"),
        ("fault_tolerance: {timeout_action: kill}", '"observe", "signal" or "terminate"'),
        ("fault_tolerance: {rank_termination_signal: SIGFOO}", "a signal, such as SIGTERM"),
        ("fault_tolerance: {", "ft.yaml:1: not YAML"),
    ],
)
def test_a_mistake_in_a_file_is_an_error_that_says_where_and_what(
    tmp_path: Path, text: str, error: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        FaultToleranceConfig.from_yaml_file(path)
    assert error in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        FaultToleranceConfig.from_yaml_file(tmp_path / "none.yaml")


def test_fields_of_nvrx_without_an_effect_here_are_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    FaultToleranceConfig.from_kwargs(enable_nic_monitor=True, rank_heartbeat_timeout=5)
    assert "fault_tolerance.enable_nic_monitor has no effect here" in caplog.text


def test_unknown_fields_are_ignored_only_if_that_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="Did you mean rank_heartbeat_timeout"):
        FaultToleranceConfig.from_kwargs(rank_heartbeat_timeouts=5)
    FaultToleranceConfig.from_kwargs(ignore_not_recognized=True, whatever=5)


@pytest.mark.parametrize("given", ["SIGTERM", "sigterm", 15, signal.SIGTERM])
def test_a_signal_is_given_by_name_or_number(given: Any) -> None:
    its = FaultToleranceConfig(rank_termination_signal=given)
    assert its.rank_termination_signal is signal.SIGTERM


@pytest.mark.parametrize("given", ["debug", "DBG", 10])
def test_a_log_level_is_given_by_name_or_number(given: Any) -> None:
    assert FaultToleranceConfig(log_level=given).log_level == logging.DEBUG
    with pytest.raises(ConfigError, match="DEBUG, INFO"):
        FaultToleranceConfig(log_level="loud")


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    its = FaultToleranceConfig(
        rank_section_timeouts={"step": 5.0, "eval": None}, rank_termination_signal=signal.SIGTERM
    )
    its.to_yaml_file(tmp_path / "ft.yaml")
    assert FaultToleranceConfig.from_yaml_file(tmp_path / "ft.yaml") == its


# --- command line ---------------------------------------------------------------------------------


def from_line(line: str) -> tuple[Any, list[str]]:
    return FaultToleranceConfig.from_arguments(line.split())


def test_arguments_before_the_script_configure_the_monitor_and_the_others_are_torchruns() -> None:
    its, others = from_line(
        "--nproc-per-node 2 --ft-param-rank_heartbeat_timeout=30 --standalone "
        "--ft-rank-section-timeouts step:1.5,eval:null --ft-timeout-action terminate train.py "
        "--ft-epochs 3"
    )
    assert its.rank_heartbeat_timeout == 30.0
    assert its.rank_section_timeouts == {"step": 1.5, "eval": None}
    assert its.timeout_action == "terminate"
    assert others == ["--nproc-per-node", "2", "--standalone", "train.py", "--ft-epochs", "3"]


def test_a_module_is_a_script_too() -> None:
    its, others = from_line("--ft-safety-factor 3 -m package.train --ft-safety-factor 9")
    assert its.safety_factor == 3.0
    assert others == ["-m", "package.train", "--ft-safety-factor", "9"]


def test_without_arguments_of_the_monitor_there_is_no_configuration() -> None:
    assert from_line("--nproc-per-node=2 train.py") == (None, ["--nproc-per-node=2", "train.py"])


@pytest.mark.parametrize("flag", ["--fault-tol-cfg-path", "--ft-cfg-path"])
def test_arguments_win_over_the_file(tmp_path: Path, flag: str) -> None:
    text = "fault_tolerance: {rank_heartbeat_timeout: 7, safety_factor: 2}"
    path = written(tmp_path, text)
    its, _ = from_line(f"--ft-param-rank_heartbeat_timeout=9 {flag} {path} train.py")
    assert (its.rank_heartbeat_timeout, its.safety_factor) == (9.0, 2.0)
    its, _ = from_line(f"--ft-param-rank_heartbeat_timeout=null {flag}={path} train.py")
    assert its.rank_heartbeat_timeout is None


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--ft-param-rank_hartbeat_timeout=3 t.py", "Did you mean rank_heartbeat_timeout?"),
        ("--ft-param-rank_heartbeat_timeout", "expected a value"),
        ("--ft-param-rank_heartbeat_timeout=soon t.py", "got 'soon'; expected seconds above 0"),
        ("--ft-rank-section-timeouts=step t.py", "name:seconds"),
    ],
)
def test_a_mistake_in_an_argument_is_an_error_that_names_it(line: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_line(line)
    assert error in str(raised.value)
    assert line.partition("=")[0].partition(" ")[0] in str(raised.value)


def test_parsed_arguments_are_read_as_nvrx_reads_them(tmp_path: Path) -> None:
    path = str(written(tmp_path, "fault_tolerance: {rank_heartbeat_timeout: 7}"))
    given = argparse.Namespace(ft_cfg_path=path, ft_rank_section_timeouts="a:1", ft_safety_factor=2)
    its = FaultToleranceConfig.from_args(given)
    assert (its.rank_heartbeat_timeout, its.safety_factor) == (7.0, 2.0)
    assert its.rank_section_timeouts == {"a": 1.0}
    with pytest.raises(ConfigError, match="Give a file or a setting"):
        FaultToleranceConfig.from_args(argparse.Namespace())


def test_without_a_yaml_library_a_file_may_be_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    path = written(tmp_path, '{"fault_tolerance": {"rank_heartbeat_timeout": 7}}')
    assert FaultToleranceConfig.from_yaml_file(path).rank_heartbeat_timeout == 7.0
    written(tmp_path, "fault_tolerance: {rank_heartbeat_timeout: 7}")
    with pytest.raises(UnavailableError, match="pip install PyYAML"):
        FaultToleranceConfig.from_yaml_file(path)
