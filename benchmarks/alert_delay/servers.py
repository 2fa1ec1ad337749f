"""Prometheus and an Alertmanager with intervals of a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.render import alertmanager_file
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.demo.processes import Server, free_address
from otel_straggler.setting import read_section

Json = dict[str, Any]

SCRAPE_S, EVALUATION_S = 0.5, 1.0
GROUP_WAIT_S, GROUP_INTERVAL_S = 1.0, 2.0
HEARTBEAT_S = 0.5
LOST_AFTER_S, MIN_TIMEOUT_S = 3.0, 4.0
ALERTS = {
    "score_for_seconds": 2,
    "straggling_for_seconds": 1,
    "hang_for_seconds": 1,
    "missing_for_seconds": 20,
    "no_data_seconds": 30,
    "run_slow_for_seconds": 5,
    "silent_seconds": 20,
    "collector_down_for_seconds": 3,
    "keep_firing_seconds": 4,
    "give_up_seconds": 900,
    "evaluation_seconds": 1,
}
"""Test intervals, in the names of ``otel-straggler alerts render --set``."""


def start_prometheus(
    program: str, folder: Path, rules: str, alertmanager: str, **scrape: Any
) -> Server:
    """It scrapes who stands in ``targets.json`` of the folder, which may change.

    Args:
        program: path.
        rules: text of a file of rules.
        alertmanager: URL.
        scrape: more of its scrape configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    (folder / "targets.json").write_text("[]")
    (folder / "prometheus.yml").write_text(json.dumps(_prometheus(folder, alertmanager, scrape)))
    address = free_address()
    flags = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--rules.alert.for-grace-period=0s",
        "--rules.alert.resend-delay=2s",
    )
    return Server([program, *flags], address, folder / "log")


def _prometheus(folder: Path, alertmanager: str, scrape: Json) -> Json:
    seconds = f"{SCRAPE_S * 1e3:g}ms"
    targets = {"files": [str(folder / "targets.json")], "refresh_interval": "1s"}
    return {
        "global": {
            "scrape_interval": seconds,
            "scrape_timeout": seconds,
            "evaluation_interval": f"{EVALUATION_S:g}s",
        },
        "rule_files": [str(folder / "rules.yml")],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}
            ]
        },
        "scrape_configs": [{"job_name": "straggler", "file_sd_configs": [targets], **scrape}],
    }


def rules(**changes: float) -> str:
    """The rules that are handed out, with test intervals, and changes of these."""
    return rules_file(read_section(AlertSettings, {**ALERTS, **changes}, "alerts"))


def alertmanager_config(webhook: str, supervisor: str = "") -> Json:
    """The example that is handed out, with short waits, and our webhook behind each receiver; and
    that of a supervisor at this URL behind the pager's."""
    config: Json = yaml.safe_load(alertmanager_file(read_section(AlertSettings, ALERTS, "alerts")))
    del config["templates"]
    for route in _routes(config["route"]):
        if "group_wait" in route:
            route["group_wait"] = f"{GROUP_WAIT_S:g}s"
            route["group_interval"] = f"{GROUP_INTERVAL_S:g}s"
    config["receivers"] = [_receiver(reported, webhook) for reported in config["receivers"]]
    if supervisor:
        (pager,) = (each for each in config["receivers"] if each["name"] == "pager")
        pager["webhook_configs"].append({"url": f"{supervisor}/v1/alerts", "send_resolved": True})
    return config


def _routes(route: Json) -> Iterator[Json]:
    """It, and all below it."""
    yield route
    for below in route.get("routes", ()):
        yield from _routes(below)


def _receiver(reported: Json, webhook: str) -> Json:
    """A receiver of the same name; it is notified of ends if the one of the example is."""
    ways = [way for name, way in reported.items() if name != "name"]
    ends = not ways or ways[0][0].get("send_resolved", True)
    way = {"url": f"{webhook}/{reported['name']}", "send_resolved": ends}
    return {"name": reported["name"], "webhook_configs": [way]}
