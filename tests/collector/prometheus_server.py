"""A real Prometheus that scrapes one collector, for tests."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from otel_straggler.demo.processes import free_address


@contextlib.contextmanager
def running_prometheus(
    program: str,
    target: str,
    folder: Path,
    *more: str,
    rules: str = "",
    options: Sequence[str] = (),
) -> Iterator[str]:
    """Its address, while it scrapes ``target``, and ``more``, every second, and evaluates
    ``rules``."""
    address = free_address()
    (folder / "rules.yml").write_text(rules)
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "rule_files": ["rules.yml"] * bool(rules),
                "scrape_configs": [
                    {"job_name": "straggler", "static_configs": [{"targets": [target, *more]}]}
                ],
            }
        )
    )
    server = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            *options,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with server:
        try:
            yield address
        finally:
            server.terminate()


def query(kit: Any, address: str, text: str) -> list[tuple[str, str]]:
    """(rank, value) of every series that the query gives; nothing while it starts up."""
    return [(labels.get("rank", ""), value) for labels, value in samples(kit, address, text)]


def samples(kit: Any, address: str, text: str) -> list[tuple[dict[str, str], str]]:
    """Labels and value of the same."""
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": text})
    try:
        answer = kit.ask(address, "GET", path)
    except OSError:
        return []
    if answer.status != 200:
        return []
    result = answer.json()["data"]["result"]
    return [(one["metric"], one["value"][1]) for one in result]
