"""Scrape configurations of the pages have TLS and a token; a real Prometheus scrapes by them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.demo.processes import Collector, Server, free_address

from ..servers.certificate import make_certificate
from ..waiting import eventually
from .pages import PAGES, ROOT, fences

TOKEN = "0123456789abcdef0123456789abcdef"
WITHIN_S = 60.0


def jobs() -> Iterator[Any]:
    """Of every page, each with the page's name."""
    for page in PAGES:
        for text in [*fences(page, ""), *fences(page, "yaml")]:
            with contextlib.suppress(yaml.YAMLError):
                document = yaml.safe_load(text)
                if isinstance(document, dict):
                    for job in document.get("scrape_configs", ()):
                        yield pytest.param(job, id=str(page.relative_to(ROOT)))


def server(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        sentence = f"{name} is not installed (make servers): no scrape configuration was tried"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    return program


def with_files(job: Any, folder: Path, target: str) -> Any:
    """The job with this folder's files in the place of those that it names, and this target."""
    text = json.dumps(job).replace("/etc/prometheus/", f"{folder}/")
    return {**json.loads(text), "static_configs": [{"targets": [target]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a certificate, and the files that the pages name."""
    make_certificate(tmp_path, days=1, untried="scraping over TLS")
    shutil.copy(tmp_path / "cert.pem", tmp_path / "straggler-ca.pem")
    (tmp_path / "straggler.token").write_text(TOKEN)
    return tmp_path


def test_there_are_scrape_configurations() -> None:
    """On the pages on alerts, on security, and on scaling out."""
    pages = {str(param.id) for param in jobs()}
    assert pages == {f"docs/operate/{name}.md" for name in ("alerts", "scale-out", "security")}


@pytest.mark.parametrize("job", list(jobs()))
def test_a_scrape_configuration_has_a_token_and_tls_and_promtool_takes_it(
    job: Any, folder: Path
) -> None:
    """A collector on the network refuses whom it does not know, and a token is no secret without
    TLS."""
    assert job["scheme"] == "https"
    assert job["tls_config"].keys() >= {"ca_file"}
    assert job["authorization"].keys() == {"credentials_file"}
    assert "insecure_skip_verify" not in json.dumps(job)
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"scrape_configs": [with_files(job, folder, "localhost:1")]}))
    command = [server("promtool"), "check", "config", str(config)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.real_server
@pytest.mark.parametrize("job", list(jobs()))
def test_a_real_prometheus_scrapes_a_collector_by_it(job: Any, folder: Path) -> None:
    """With grants and TLS; with another token the target is down."""
    (folder / "grants").write_text(f"read prometheus token:{TOKEN}\n")
    config = folder / "collector.yaml"
    settings = {
        "auth": {"grant_files": [str(folder / "grants")]},
        "tls": {"cert_file": str(folder / "both.pem")},
    }
    config.write_text(json.dumps(settings))
    with contextlib.ExitStack() as running:
        collector = Collector(f"--config={config}")
        running.callback(collector.close)
        target = f"localhost:{collector.addresses['metrics'].rpartition(':')[2]}"
        wrong = folder / "wrong.token"
        wrong.write_text("another-0123456789abcdef")
        scraped = [
            {**with_files(job, folder, target), "job_name": "right"},
            {
                **with_files(job, folder, target),
                "job_name": "wrong",
                "authorization": {"credentials_file": str(wrong)},
            },
        ]
        address = free_address()
        file = folder / "prometheus.yml"
        intervals = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        file.write_text(json.dumps({"global": intervals, "scrape_configs": scraped}))
        options = (f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}")
        command = [server("prometheus"), f"--config.file={file}", *options]
        running.callback(Server(command, address, folder / "log").close)
        eventually(lambda: _up(address) == {"right": "1", "wrong": "0"}, WITHIN_S)


def _up(address: str) -> dict[str, str]:
    with urllib.request.urlopen(f"http://{address}/api/v1/query?query=up", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return {one["metric"]["job"]: one["value"][1] for one in result}
