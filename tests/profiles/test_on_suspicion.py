"""A confirmed slow rank and a healthy peer profile some steps, and the operator that differs is
named: real ranks over gloo, and a real collector."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.collector.api import profiling
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    CommandsSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.model.operator_tables import OUTSIDE

from ..waiting import eventually

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="no torch: it would show that a slow operator is named"
)
RANK = Path(__file__).with_name("suspect_rank.py")
TOKEN, RANKS, SLOW_RANK = "s3cret", 3, 1
FREE = "127.0.0.1:0"


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The OTLP and the metrics URL of a collector that profiles on suspicion."""
    monkeypatch.setattr(profiling, "LEAD_S", 2.0)  # ranks ask each 0.2 s
    settings = CollectorSettings(
        receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
        metrics=MetricsSettings(listen=FREE),
        commands=CommandsSettings(enabled=True, token=TOKEN, profile_steps=5),
    )
    collector = Collector(settings)
    addresses = collector.start()
    yield f"http://{addresses['otlp_http']}", f"http://{addresses['metrics']}"
    collector.stop()


@pytest.fixture
def train(tmp_path: Path, pages: tuple[str, str]) -> Iterator[Callable[..., None]]:
    """Starts the ranks; they end together when the test does."""
    with contextlib.ExitStack() as started:

        def begin() -> None:
            ranks = [_started(rank, tmp_path, pages[0]) for rank in range(RANKS)]
            started.callback(_ended, tmp_path, ranks)

        yield begin


def _started(rank: int, folder: Path, endpoint: str) -> subprocess.Popen[str]:
    given = {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "OTEL_STRAGGLER_ENDPOINT": endpoint,
        "OTEL_STRAGGLER_RUN_ID": "suspects",
        "OTEL_STRAGGLER_COMMANDS": "on",
        "OTEL_STRAGGLER_COMMANDS_TOKEN": TOKEN,
        "OTEL_STRAGGLER_HEARTBEAT_S": "0.2",
        "OTEL_STRAGGLER_FLUSH_S": "0.2",
        "OTEL_STRAGGLER_EXIT_DEADLINE_S": "0.5",
        "OTEL_RESOURCE_ATTRIBUTES": f"host.name=node-{rank}",
    }
    return subprocess.Popen(
        [sys.executable, RANK, folder],
        env={**os.environ, **given},
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(folder: Path, ranks: list[subprocess.Popen[str]]) -> None:
    (folder / "stop").touch()
    try:
        errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, errors


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def answered(pages: str) -> Any:
    """The pair of the report, once both ranks have answered."""
    run = get(f"{pages}/v1/report")["runs"].get("suspects", {})
    for pair in run.get("profiles", ()):
        if pair["operators"]:
            return pair
    return None


def test_the_operator_that_takes_longer_on_the_slow_rank_is_named(
    train: Callable[..., None], pages: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the report, on the page, and on the command line, with both ranks' times."""
    train()
    pair = eventually(lambda: answered(pages[1]), 120.0)
    assert pair["slow_rank"] == SLOW_RANK
    assert pair["peer_rank"] in {0, 2}
    most = next(each for each in pair["operators"] if each["name"] != OUTSIDE)
    assert most["name"] == "aten::mm"
    assert most["slow_s"] > most["peer_s"] > 0.0
    assert (most["slow_calls"], most["peer_calls"]) == (1.0, 1.0)
    assert pair["sentence"].startswith("aten::mm takes ")
    assert f"x as long on rank 1 as on rank {pair['peer_rank']} (" in pair["sentence"]
    differences = [each["difference_s"] for each in pair["operators"]]
    assert differences == sorted(differences, reverse=True)
    for first, last in (pair["slow_steps"], pair["peer_steps"]):
        assert last - first == 4
    [shown] = get(f"{pages[1]}/v1/run?run=suspects")["profiles"]
    assert shown == pair
    assert main(["report", "suspects", "--collector", pages[1]]) == 0
    assert "aten::mm takes" in " ".join(capsys.readouterr().out.split())
