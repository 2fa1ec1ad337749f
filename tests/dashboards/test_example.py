"""The example for compose: what its servers would read, and that they reach each other."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.alerts.render import render_all
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.access.grants import digest, read_grants
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.settings_file import check_exposure, load_settings

from .conftest import FOLDER

KEYS = {"image", "ports", "extra_hosts", "volumes", "command", "environment"}
"""Of a service, as the compose specification has them; what is used of it here."""
MADE = ("./alerts", "./prometheus.token")
"""By the commands at the top of compose.yaml."""


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def test_compose_mounts_what_there_is_where_it_is_read() -> None:
    """Files of this folder, of the rendered alerts, or volumes that are named; ports are those of
    this machine alone; pages lie where their provider looks."""
    compose = read("compose.yaml")
    assert compose.keys() == {"services", "volumes"}
    mounted = {}
    for service in compose["services"].values():
        assert service.keys() <= KEYS
        assert service["image"].count(":") == 1
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            mounted[target] = source
            if source in compose["volumes"]:
                assert not mode
            else:
                assert mode == ["ro"]
                assert source in MADE or (FOLDER / source).exists()
    [provider] = read("provisioning/dashboards/otel-straggler.yaml")["providers"]
    assert mounted[provider["options"]["path"]] == "./"
    [source] = read("provisioning/datasources/otel-straggler.yaml")["datasources"]
    environment = compose["services"]["grafana"]["environment"]
    assert source["url"].removeprefix("$") in environment
    assert source["jsonData"]["timeInterval"] == read("prometheus.yml")["global"]["scrape_interval"]


def test_the_commands_of_the_example_make_a_collector_that_nobody_uses_without_a_token(
    tmp_path: Path,
) -> None:
    """It is on the network, so it has grants: those of the commands at the top."""
    lines = (FOLDER / "compose.yaml").read_text(encoding="utf-8").splitlines()
    commands = [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]
    end = next(n for n, line in enumerate(commands) if line.startswith("otel-straggler collector"))
    script = "\n".join(line.removeprefix("#") for line in commands[:end])
    if shutil.which("openssl") is None:
        pytest.skip(
            "openssl is not installed (apt install openssl): "
            "the commands of the example were not tried"
        )
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    settings = load_settings(FOLDER / "collector.yaml", {})
    check_exposure(settings)
    [name] = settings.auth.grant_files
    grants = read_grants(str(tmp_path / name))
    assert [(each.principal.role, each.principal.name) for each in grants] == [
        ("read", "prometheus"),
        ("admin", "me"),
    ]
    [job] = read("prometheus.yml")["scrape_configs"]
    credentials = Path(job["authorization"]["credentials_file"])
    token = (tmp_path / credentials.name).read_text(encoding="utf-8").strip()
    assert grants[0].credential == digest(token)
    assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_the_collector_answers_whom_prometheus_asks() -> None:
    """By a name, which a collector refuses unless it is told; on the port that is asked."""
    [job] = read("prometheus.yml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    settings = load_settings(FOLDER / "collector.yaml", {}).metrics
    assert settings.listen == f"0.0.0.0:{target.rpartition(':')[2]}"
    assert Guard(allowed_hosts=tuple(settings.allowed_hosts)).is_own_name(target)
    assert not Guard().is_own_name(target)


def test_prometheus_and_alertmanager_can_read_it(tmp_path: Path) -> None:
    """With the rules and the routes that `alerts render` writes beside it."""
    for name, text in render_all(AlertSettings()).items():
        file = tmp_path / "alerts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    reported = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.token").write_text("0123456789abcdef")
    config = tmp_path / "prometheus.yml"
    config.write_text(reported.replace("/etc/prometheus/", f"{tmp_path}/"))
    for program, *arguments in (
        ("promtool", "check", "config", str(config)),
        ("amtool", "check-config", str(tmp_path / "alerts" / "alertmanager.yaml")),
    ):
        result = shutil.which(program)
        if result is None:
            sentence = f"{program} is not installed (make servers): nobody read the example"
            pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
        ran = subprocess.run([result, *arguments], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert program == "amtool" or "2 rule files found" in ran.stdout
