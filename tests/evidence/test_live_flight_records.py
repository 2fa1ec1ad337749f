"""A collector asks the ranks of a stuck run for their flight records: real processes over gloo."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.semconv import DUMP_FLIGHT_RECORD

from .conftest import ON, TOKEN, Live

pytest.importorskip("torch", reason="torch is not installed: no collective is recorded")


@pytest.fixture
def stuck_ranks(start: Any, collect: Any, free_port: str) -> Any:
    """Starts the ranks of a run that gets stuck; with the collector that asks them."""

    def begin(way: str, size: int, **env: str) -> tuple[Live, list[Any]]:
        live = collect(DUMP_FLIGHT_RECORD, start_timeout_s=6.0, lost_after_s=20.0)
        world = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port,
            "OMP_NUM_THREADS": "1",
            "OTEL_STRAGGLER_EVIDENCE_DIR": "",
            "OTEL_STRAGGLER_RING_DIR": "",
            "OTEL_STRAGGLER_ENDPOINT": live.otlp,
        }
        ranks = [start(way, rank=rank, **world, **ON, **env) for rank in range(size)]
        for one in ranks:
            assert one.line() == "stuck"
        return live, ranks

    return begin


def get(live: Live, path: str) -> Any:
    with urllib.request.urlopen(f"{live.pages}{path}") as response:
        return json.loads(response.read())


def liveness(live: Live) -> Any:
    runs = get(live, "/v1/report?run=stuck-run")["runs"]
    return runs["stuck-run"]["liveness"][0] if "stuck-run" in runs else None


def collective(live: Live) -> Any:
    """What the flight records say, once they do."""
    hang = liveness(live)
    return hang and hang["collective"]


def test_the_rank_that_has_not_entered_an_all_reduce_is_named_live(
    stuck_ranks: Any, wait: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """By report, page and command line, with the operation, its number, its group and the section;
    without a dump, and although all ranks are in the same section."""
    live, ranks = stuck_ranks("all_reduce_alone", 3)
    wait(lambda: (found := collective(live)) and found["ranks"] == [0, 1, 2])
    [culprit] = collective(live)["culprits"]
    assert (culprit["rank"], culprit["why"], culprit["waiting"]) == (1, "never_joined", [0, 2])
    assert (culprit["operation"], culprit["sequence"]) == ("all_reduce", 1)
    assert culprit["process_group"] == "default_pg"
    assert (culprit["section"], culprit["step"]) == ("forward", 812)
    hang = liveness(live)
    assert (hang["why"], hang["culprits"], hang["victims"]) == ("never_joined", [1], 2)
    assert hang["sentence"].startswith("Rank 1 has not entered all_reduce #1 of default_pg")
    answer = get(live, "/v1/run?run=stuck-run")["answer"]
    assert answer["rank"] == 1
    assert "all_reduce #1 of default_pg" in answer["sentence"]
    assert main(["report", "--collector", live.pages]) == 0
    assert "Rank 1 has not entered all_reduce #1" in " ".join(capsys.readouterr().out.split())
    for one in ranks:
        assert one.close().count("of the collector: dump_flight_record") in {1, 2}


def test_a_rank_that_does_not_come_to_the_averaging_of_gradients_is_named(
    stuck_ranks: Any, wait: Any
) -> None:
    """Within DDP's backward, whose collectives no program calls."""
    live, _ = stuck_ranks("backward_alone", 2)
    [culprit] = wait(lambda: collective(live))["culprits"]
    assert (culprit["rank"], culprit["operation"], culprit["waiting"]) == (1, "all_reduce", [0])


def test_the_chain_of_waits_is_followed_through_groups(stuck_ranks: Any, wait: Any) -> None:
    """Rank 0 waits for both others, rank 1 for rank 2 in a barrier of their pair."""
    live, _ = stuck_ranks("barrier_of_two", 3)
    wait(lambda: (found := collective(live)) and found["ranks"] == [0, 1, 2])
    [culprit] = wait(lambda: who_waits_for_nobody(live))
    assert (culprit["rank"], culprit["call"]) == (2, "barrier #2 of pair")
    assert liveness(live)["culprits"] == [2]
    assert liveness(live)["sentence"].startswith("Rank 2 has not entered barrier #2 of pair")


def who_waits_for_nobody(live: Live) -> Any:
    """The culprits, once all that wait were in their collectives when they were read."""
    culprits = collective(live)["culprits"]
    return culprits if [one["waiting"] for one in culprits] == [[0, 1]] else None


def test_a_stopped_rank_is_named_by_what_the_others_wait_in(stuck_ranks: Any, wait: Any) -> None:
    """Its own recorder cannot be read."""
    live, ranks = stuck_ranks("all_reduce_alone", 3)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    [culprit] = wait(lambda: collective(live), 90.0)["culprits"]
    assert (culprit["rank"], culprit["why"], culprit["waiting"]) == (1, "no_dump", [0, 2])
    text = "Rank 1 does not answer, and is waited for in all_reduce #1 of default_pg"
    assert culprit["sentence"].startswith(text)
    wait(lambda: liveness(live)["why"] == "lost")
    assert text in liveness(live)["sentence"]


def test_a_person_may_ask_for_the_records_of_a_stuck_run(
    stuck_ranks: Any, wait: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is told what they say."""
    live, _ = stuck_ranks("all_reduce_alone", 2)
    wait(lambda: collective(live))
    monkeypatch.setenv("OTEL_STRAGGLER_COMMANDS_TOKEN", TOKEN)
    ask = ["hang", "ask", "--collector", live.pages, "--run", "stuck-run", DUMP_FLIGHT_RECORD]
    assert main(ask) == 0
    out = capsys.readouterr().out
    assert "Ranks 0 and 1: done." in out
    assert "Rank 1 has not entered all_reduce #1 of default_pg" in out


def test_ranks_without_a_flight_recorder_say_so_once_and_are_blamed_for_nothing(
    stuck_ranks: Any, wait: Any
) -> None:
    """Where PyTorch's is off."""
    live, ranks = stuck_ranks("all_reduce_alone", 2, TORCH_FR_BUFFER_SIZE="0")
    wait(lambda: n_failed(live) == 2, 90.0)
    assert liveness(live)["collective"] is None
    assert liveness(live)["why"] == "joined_but_stuck"
    for one in ranks:
        assert one.close().count("flight recorder cannot be read: it is off") == 1


def n_failed(live: Live) -> float:
    with urllib.request.urlopen(f"{live.pages}/metrics") as response:
        lines = response.read().decode().splitlines()
    labels = ("straggler_collector_commands_total", 'outcome="failed"', DUMP_FLIGHT_RECORD)
    return sum(float(line.split()[-1]) for line in lines if all(label in line for label in labels))
