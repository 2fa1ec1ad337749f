"""``otel-straggler goodput``: recordings and event logs in; tables, JSON and pages out."""

import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_straggler.cli import main
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.goodput.job_events import JobEvent, event_line
from otel_straggler.semconv import BADPUT

from ..waiting import eventually

MINUTE = 60 * 10**9
EXAMPLE = (
    (0, "job_started", -1),
    (5, "checkpoint_loaded", 25),
    (55, "step_finished", 50),
    (60, "checkpoint_saved", 50),
    (100, "step_finished", 70),
    (100, "job_terminated", -1),
    (115, "job_started", -1),
    (120, "checkpoint_loaded", 50),
    (195, "step_finished", 75),
    (200, "checkpoint_saved", 75),
    (200, "job_terminated", -1),
)


def example_text() -> str:
    events = [JobEvent(at * MINUTE, what, step, job_name="n1") for at, what, step in EXAMPLE]
    return "".join(f"{event_line(event)}\n" for event in events)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "n1-goodput.log"
    path.write_text(example_text())
    return path


def runs_in(path: Path) -> list[dict]:
    return json.loads(path.read_text())["runs"]


def test_an_event_log_becomes_the_table_of_its_example(call, log: Path) -> None:
    code, output, _ = call("goodput", log, "--reference-step-time", "120")
    assert code == 0
    rows = {line.split()[0]: line.split("  ") for line in output.splitlines() if line}
    assert "n1: goodput 50.00 % of 3 h 20 min, 1 rank, 2 attempts" in output
    for name, share in {
        "productive": "50.00 %",
        "redone": "20.00 %",
        "slow_steps": "12.50 %",
        "restart": "7.50 %",
        "checkpoint": "5.00 %",
        "checkpoint_load": "5.00 %",
    }.items():
        assert share in [cell.strip() for cell in rows[name]]
    assert "from checkpoints alone: 50.00 %, steps 25 to 75" in output


def test_the_json_has_every_category_to_the_nanosecond(call, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert call("goodput", log, "--json", out)[0] == 0
    [run] = runs_in(out)
    assert {"productive", "excluded", *BADPUT} == set(run["time_ns"])
    assert sum(run["time_ns"].values()) == 200 * MINUTE
    assert run["checkpoints"] is None  # it needs the reference step time
    assert sum(map(sum, run["timeline"]["share"].values())) == pytest.approx(240, abs=0.01)


def test_excluded_time_counts_neither_way(call, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, _, _ = call("goodput", log, "--exclude", "6000/1970-01-01T01:55:00Z", "--json", out)
    assert code == 0
    [run] = runs_in(out)
    assert run["time_ns"]["excluded"] == 15 * MINUTE
    assert run["time_ns"]["restart"] == 0
    assert run["wall_s"] == 185 * 60


@pytest.mark.parametrize(
    "arguments",
    [
        ("--exclude", "monday/tuesday"),
        ("--exclude", "20/10"),
        ("--reference-step-time", "0"),
        ("--window", "-1"),
        ("--json", "-", "--html", "-"),
        ("--run", "other"),
    ],
)
def test_a_wrong_option_is_named(call, log: Path, arguments: tuple[str, ...]) -> None:
    code, output, error = call("goodput", log, *arguments)
    assert (code, output) == (2, "")
    assert arguments[0] in error or "-" in error


def test_a_broken_line_is_named(call, log: Path) -> None:
    log.write_text(f"{example_text()}nonsense\n")
    code, _, error = call("goodput", log)
    assert code == 2
    assert f"{log}:12" in error


def test_events_of_other_types_are_left_out_with_a_note(call, log: Path) -> None:
    log.write_text(example_text() + '{"timestamp": "1970-01-01T00:00:00", "event_type": "x"}\n')
    code, _, error = call("goodput", log)
    assert code == 0
    assert "1 events of other types are left out" in error


def test_a_run_is_written_as_an_event_log_with_the_same_account(call, log: Path, tmp_path) -> None:
    again, out = tmp_path / "again.log", tmp_path / "out.json"
    assert call("goodput", log, "--events", again)[0] == 0
    assert again.read_text() == example_text()
    assert call("goodput", again, "--json", out)[0] == 0
    assert runs_in(out)[0]["time_ns"]["restart"] == 15 * MINUTE


def test_a_recording_gives_an_account_and_an_event_log(call, tmp_path: Path) -> None:
    """Also of a simulated run with checkpoints and a restart."""
    recording, log = tmp_path / "run.jsonl", tmp_path / "run.log"
    call("simulate", "--ranks", "4", "--steps", "60", "-o", recording)
    code, output, _ = call("goodput", recording, "--events", log)
    assert code == 0
    assert "4 ranks, 1 attempt" in output
    assert "60 steps count, 0 were done again" in output
    types = [json.loads(line)["event_type"] for line in log.read_text().splitlines()]
    assert types == ["job_started", "job_terminated"]


def test_stragglers_cost_what_their_verdicts_say(call, tmp_path: Path) -> None:
    """Rank 3 is slow from step 60 on: nothing is lost before."""
    recording, out = tmp_path / "run.jsonl", tmp_path / "out.json"
    slow = ("--ranks", "8", "--steps", "200", "--slow-rank", "3", "--onset-step", "60")
    call("simulate", *slow, "-o", recording)
    assert call("goodput", recording, "--json", out)[0] == 0
    [run] = runs_in(out)
    share = run["timeline"]["share"]["stragglers"]
    begins = next(at for at, value in enumerate(share) if value)
    assert begins / len(share) == pytest.approx(60 / 200, abs=0.05)
    assert 0.05 < run["categories"]["stragglers"]["share"] < 0.25


def test_a_page_is_one_file_without_a_script(call, log: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    log.write_text(example_text().replace('"n1"', '"<script>alert(1)</script>"'))
    assert call("goodput", log, "--html", page, "--window", "1200")[0] == 0
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "polyline" in text


def test_a_directory_may_hold_recordings_and_event_logs(call, log: Path, tmp_path: Path) -> None:
    call("simulate", "--ranks", "2", "--steps", "30", "-o", tmp_path / "run.jsonl")
    code, output, _ = call("goodput", tmp_path)
    assert code == 0
    assert "n1: goodput" in output
    assert "simulated: goodput" in output


def test_standard_input_is_the_default(call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(example_text().encode()))

        @staticmethod
        def isatty() -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Stdin)
    assert "goodput" in call("goodput")[1]


# --- of a run that a collector knows --------------------------------------------------------------


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    """Its --metrics URL; it knows a run of 120 steps that has ended."""
    free = "127.0.0.1:0"
    running = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=free, otlp_grpc=free),
            metrics=MetricsSettings(listen=free),
        )
    )
    addresses = running.start()
    try:
        url = f"http://{addresses['otlp_http']}"
        sent = ["simulate", "--ranks", "4", "--steps", "120", "--run-id", "known", "--send", url]
        assert main(sent) == 0
        yield f"http://{addresses['metrics']}"
    finally:
        running.stop()


def page_of(url: str, path: str) -> dict:
    with urllib.request.urlopen(f"{url}{path}") as answer:
        return json.load(answer)


def test_a_run_is_asked_of_the_collector_as_by_its_neighbours(
    call, collector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the numbers of the page; a name that is no file needs no option."""
    eventually(
        lambda: [run["state"] for run in page_of(collector, "/v1/runs")["runs"]] == ["finished"]
    )
    known = page_of(collector, "/v1/run?run=known")["run"]["goodput"]
    out = tmp_path / "out.json"
    code, output, _ = call("goodput", "known", "--collector", collector, "--json", out)
    assert code == 0
    assert f"known: goodput {100 * known['goodput']:.2f} % of " in output
    assert "4 ranks, 1 attempt" in output
    assert "steps that count" in output
    [run] = runs_in(out)
    assert run["goodput"] == known["goodput"]
    assert sum(each["seconds"] for each in run["categories"].values()) == pytest.approx(
        run["elapsed_s"], abs=0.01
    )
    assert run["ranks"] is None  # a collector does not keep them, and that is no empty list
    monkeypatch.setattr("otel_straggler.cli.goodput.DEFAULT_COLLECTOR", collector)
    assert call("goodput", "known")[1] == output


def test_what_a_collector_does_not_keep_is_refused_with_where_it_is(call, collector: str) -> None:
    """Instead of being left out in silence."""
    code, _, errors = call("goodput", "known", "--collector", collector, "--html", "x.html")
    assert code == 2
    assert "--html: got 'x.html'; expected a run that is not read from a collector" in errors
    assert "--history" in errors


def test_a_name_that_is_neither_a_file_nor_a_run_is_both_in_the_error(call) -> None:
    """It may have been a typing error in either."""
    code, _, errors = call("goodput", "rnu.jsonl", "--collector", "http://127.0.0.1:9")
    assert code == 2
    assert "there is no file rnu.jsonl, and as a run: http://127.0.0.1:9" in errors
