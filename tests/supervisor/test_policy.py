"""The file of a supervisor: what it may say, and what a mistake in it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_straggler.errors import ConfigError
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.causes import cause_of_report
from otel_straggler.supervisor.decide import REASONS, simulate_fleet
from otel_straggler.supervisor.fleet import HOST_STATES, Fleet, Host
from otel_straggler.supervisor.policy import ACTIONS
from otel_straggler.supervisor.service import executor_for
from otel_straggler.supervisor.settings import check_policy, check_start, load_settings
from otel_straggler.supervisor.xids import SEVERITIES

from .supervised import NOW_S

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "supervisor.yaml"
PAGE = (ROOT / "docs" / "operate" / "supervisor.md").read_text(encoding="utf-8")


def written(folder: Path, text: str) -> Path:
    path = folder / "supervisor.yaml"
    path.write_text(text)
    return path


def test_the_example_is_what_a_supervisor_starts_with() -> None:
    """Its executor can do what its rules say, and prints."""
    settings = load_settings(EXAMPLE)
    check_start(settings)
    check_policy(settings, executor_for(settings).actions)
    assert settings.executor.kind == "print"
    assert len(settings.policy.rules) == 9
    assert settings.policy.severities == {63: "gpu"}
    assert settings.executor.shell.commands["cordon"] == ("kubectl", "cordon", "{host}")  # type: ignore[call-overload]


def test_the_example_replaces_a_host_whose_ranks_die_again_and_again() -> None:
    """Three times it is only recorded; a rank that lost its peer counts for nothing."""
    policy = load_settings(EXAMPLE).policy
    fleet = Fleet().with_hosts([Host(name="a", state="running"), Host(name="s")])
    causes = [
        (NOW_S + n, cause_of_report(exited(f"{n}", reason, NOW_S + n)))
        for n, reason in enumerate(["SIGKILL", "exit_1", "SIGBUS", "SIGKILL", "SIGKILL"])
    ]
    decisions = simulate_fleet(fleet, causes, policy).decisions
    assert [each.action or each.reason for each in decisions] == [
        "notify", "no_rule", "notify", "notify", "replace_host",
    ]  # fmt: skip


def exited(id_: str, reason: str, at_unix_s: float) -> FleetReport:
    """A report about a rank of host ``a``; each about another one."""
    return FleetReport(
        kind="rank_exited", id=id_, run_id="r", attempt=0, node="a", rank=int(id_),
        at_unix_s=at_unix_s, reason=reason,
    )  # fmt: skip


def test_the_examples_of_the_page_are_accepted(tmp_path: Path) -> None:
    """One by Alertmanager, one by a supervisor; and every reason and action is on the page."""
    alertmanager, policy = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(load_settings(written(tmp_path, policy)).policy.rules) == 3
    assert all(f"`{word}`" in PAGE for word in (*REASONS, *ACTIONS, *HOST_STATES, *SEVERITIES))
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip(
            "amtool is not installed (make servers): "
            "it would show that Alertmanager takes the receiver"
        )
    file = tmp_path / "alertmanager.yml"
    file.write_text(f"route: {{receiver: supervisor}}\n{alertmanager}")
    done = subprocess.run([amtool, "check-config", file], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_file_nothing_is_done() -> None:
    """On loopback, with the executor that prints, without a rule."""
    settings = load_settings(None)
    assert settings.policy.rules == ()
    assert settings.executor.kind == "print"
    assert settings.server.listen == "127.0.0.1:9470"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("polcy: {}", "got 'polcy'; .*Did you mean policy"),
        ("policy: {max_action: 3}", "got 'max_action'; .*Did you mean max_actions"),
        (
            "policy: {rules: [{alert: A, acton: notify}]}",
            r"policy.rules\[0\]: got 'acton'; .*Did you mean action",
        ),
        (
            "policy: {rules: [{alert: A, action: restart}]}",
            r"policy.rules\[0\].action: got 'restart'; .*restart_workload",
        ),
        ("policy: {rules: [{alert: A}]}", r"policy.rules\[0\].action: got None; expected one of"),
        ("policy: {rules: [{action: cordon}]}", "at least one of alert, report and xid"),
        ("policy: {rules: [{alert: A, report: [rank_hung], action: cordon}]}", "only one of them"),
        ("policy: {rules: [{alert: 'A(', action: cordon}]}", "expected a regular expression"),
        ("policy: {rules: [{report: [rank_hang], action: cordon}]}", "a list of rank_hung"),
        ("policy: {rules: [{xid: [fatal], action: cordon}]}", "a list of none, application"),
        ("policy: {rules: [{alert: A, labels: {rank: 3}, action: cordon}]}", "in quotes"),
        ("policy: {rules: [{alert: A, action: cordon, times: -1}]}", "times: got -1"),
        ("policy: {rules: notify}", "policy.rules: got 'notify'; expected a list"),
        ("policy: {rules: [notify]}", r"policy.rules\[0\]: got 'notify'; expected a mapping"),
        ("policy: {xids: {79: fatal}}", "policy.xids: got .*; expected a mapping of XIDs"),
        ("policy: {max_fleet_share: 10}", "max_fleet_share: got 10; expected a number of 0 to 1"),
        ("policy: {cooldown_seconds: soon}", "cooldown_seconds: got 'soon'"),
        ("fleet: {hosts: {a: idle}}", "fleet.hosts: got .*; expected a mapping of host names"),
        ("fleet: {hosts: [a]}", "fleet.hosts: got"),
        ("executor: {kind: ssh}", 'executor.kind: got \'ssh\'; expected "print", "shell"'),
        ("executor: {shell: {commands: {reboot: [x]}}}", "executor.shell.commands: got"),
        ("executor: {shell: {commands: {cordon: [x, '{hots}']}}}", "executor.shell.commands: got"),
        ("executor: {shell: {commands: {cordon: ['{host}']}}}", "executor.shell.commands: got"),
        ('executor: {shell: {commands: {cordon: "x \'"}}}', "executor.shell.commands: got"),
        ("executor: {kubernetes: {pod_selector: app=x}}", "with {run_id} in it"),
        ("executor: {slurm: {job_pattern: 'slurm-.*'}}", "a regular expression with one group"),
        ("server: {listen: '9470'}", "server.listen: got '9470'; expected HOST:PORT"),
        ("export: {endpoint: gateway}", "export.endpoint: got"),
        ("policy:\n  rules: []\n  rules: []\n", "each key once, and line 2 has it"),
        ("policy: [", "supervisor.yaml:1: not YAML"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_what_was_expected(
    text: str, expected: str, tmp_path: Path
) -> None:
    """And the nearest name that there is."""
    with pytest.raises(ConfigError, match=f"(?s){expected}"):
        load_settings(written(tmp_path, text))


def test_a_rule_for_what_the_executor_cannot_do_stops_the_start(tmp_path: Path) -> None:
    """Not only when it is needed."""
    text = (
        "executor: {kind: slurm}\npolicy: {rules: [{name: up, alert: A, action: scale_up}]}\n"
        f"state: {{path: {tmp_path / 'db'}}}"
    )
    settings = load_settings(written(tmp_path, text))
    with pytest.raises(
        ConfigError, match=r"rules: up: got 'scale_up'; .* executor slurm can do: co"
    ):
        check_policy(settings, executor_for(settings).actions)


def test_an_address_that_others_reach_needs_grants(tmp_path: Path) -> None:
    """Unless somebody allows it in so many words."""
    text = "server: {listen: '0.0.0.0:0'}\n"
    with pytest.raises(ConfigError, match=r"server.listen: got '0.0.0.0:0'; .*drained"):
        check_start(load_settings(written(tmp_path, text)))
    check_start(load_settings(written(tmp_path, text + "auth: {insecure: true}\n")))
    grants = tmp_path / "grants"
    grants.write_text("ingest alertmanager token:0123456789abcdef\n")
    check_start(load_settings(written(tmp_path, text + f"auth: {{grant_files: [{grants}]}}\n")))
