"""``otel-straggler replay --would-have-paged``: how often settings would have called somebody."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.history.history import History
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    HistorySettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.model.verdict import Verdict
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import encode_requests_of, frame

FREE = "127.0.0.1:0"
HOUR_NS = 3_600 * 10**9
Json = dict[str, Any]
Call = Callable[..., tuple[int, str, str]]


def requests_of(*faults: str, steps: int = 300, layout: str = "dp16") -> list[bytes]:
    """What the ranks of a simulated run send."""
    parsed = tuple(map(Fault.parse, faults))
    plan = RunPlan(layout=Layout.parse(layout), steps=steps, faults=parsed, run_id="job-7")
    return list(encode_requests_of(generate(plan).batches()))


def recorded(path: Path, requests: list[bytes]) -> Path:
    """As a file of OTLP protobuf."""
    path.write_bytes(b"".join(map(frame, requests)))
    return path


def kept(path: Path, requests: list[bytes]) -> Path:
    """The history of a collector that was sent the same."""
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            history=HistorySettings(path=str(path)),
        )
    )
    address = collector.start()["otlp_http"]
    try:
        for body in requests:
            headers = {"Content-Type": "application/x-protobuf"}
            sent = urllib.request.Request(f"http://{address}/v1/traces", body, headers)
            urllib.request.urlopen(sent, timeout=30).close()
    finally:
        collector.stop()
    return path


def replayed(call: Call, *arguments: object) -> Json:
    code, output, errors = call("replay", *arguments, "--would-have-paged", "--json")
    assert (code, errors) == (0, "")
    report: Json = json.loads(output)
    return report


def pages(report: Json, run_id: str = "job-7") -> list[Json]:
    result: list[Json] = report["runs"][run_id]["pages"]
    return result


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(verdicts: str) -> Path:
        path = tmp_path / "collector.yaml"
        path.write_text(f"verdicts: {verdicts}\n")
        return path

    return write


# --- telemetry ----------------------------------------------------------------------------------


def test_a_recorded_run_says_who_would_have_been_called(call: Call, tmp_path: Path) -> None:
    """When, for whom, why, how much it costs, and how often that is in a week."""
    path = recorded(tmp_path / "run", requests_of("compute:1.25@rank5:step100-200"))
    report = replayed(call, path)
    [page] = pages(report)
    assert (page["subject_id"], page["cause"]) == ("rank/node-0/5", "slow_gpu")
    assert page["slowdown"] == pytest.approx(1.25, rel=0.05)
    assert 100 <= page["step"] <= 120
    lasted_h = (page["ended_ns"] - page["at_ns"]) / HOUR_NS
    hourly = page["gpu_seconds_lost_per_hour"] / 3600
    assert page["gpu_hours_lost"] == pytest.approx(lasted_h * hourly)
    run = report["runs"]["job-7"]
    weekly = 7 * 24 * 3600 / run["recorded_s"]
    assert run["per_cause"]["slow_gpu"]["pages"] == 1
    assert run["per_cause"]["slow_gpu"]["per_week"] == pytest.approx(weekly)
    assert (report["source"], report["note"]) == ("telemetry", None)


def test_people_read_a_table_the_time_recorded_and_the_sentences(
    call: Call, tmp_path: Path
) -> None:
    """A rate from minutes is called a guess."""
    path = recorded(tmp_path / "run", requests_of("compute:1.25@rank5:step100"))
    code, output, _ = call("replay", path, "--would-have-paged")
    assert code == 0
    first, _, row, *rest = output.splitlines()
    assert first.startswith("run job-7, 1")
    assert first.endswith(" min recorded: 1 page")
    assert row.split()[:6] == ["slow", "GPU", "or", "host", "rank", "1"]
    assert rest[0] == "A weekly rate from less than a day is a guess."
    [page] = pages(replayed(call, path))
    assert rest[1].endswith(f" step {page['step']}: {page['sentence']}")
    assert rest[2] == "settings: page_slowdown 1.1, page_loss 0.05, page_gpu_hours 16"


@pytest.mark.parametrize(
    ("verdicts", "count"),
    [
        ("{page_slowdown: 1.1}", 1),
        ("{page_slowdown: 1.4}", 0),
        ("{page_loss: 0.5}", 0),
        ("{min_slowdown: 1.4}", 0),
    ],
)
def test_another_setting_is_another_number_of_pages(
    call: Call, tmp_path: Path, config: Callable[[str], Path], verdicts: str, count: int
) -> None:
    """Of telemetry also where it is about detection."""
    path = recorded(tmp_path / "run", requests_of("compute:1.25@rank5:step100"))
    report = replayed(call, path, "--config", config(verdicts))
    assert len(pages(report)) == count
    name, value = verdicts.strip("{}").split(": ")
    assert report["settings"][name] == float(value)


def test_a_slowdown_that_grows_pages_when_it_is_large_enough(call: Call, tmp_path: Path) -> None:
    """Not when it was confirmed, at a few per cent; and once."""
    path = recorded(tmp_path / "run", requests_of("ramp:1.3@rank5:step100"))
    [page] = pages(replayed(call, path))
    assert 1.10 <= page["slowdown"] < 1.2
    confirmed, *_ = confirmations(call, path)
    assert confirmed["at_step"] < page["step"]


def confirmations(call: Call, path: Path) -> list[Json]:
    run = json.loads(call("score", path, "--json")[1])["runs"]["job-7"]
    return [change for change in run["verdicts"] if change["state"] == "confirmed"]


def test_runs_of_one_file_stand_apart_and_one_can_be_chosen(call: Call, tmp_path: Path) -> None:
    """The total is over the time of all."""
    path = tmp_path / "runs.csv"
    whole = tmp_path / "one.csv"
    for number, slowdown in enumerate(("1.5", "1.0")):
        simulate = ("simulate", "--layout", "dp8", "--steps", 200, "--run-id", f"run-{number}")
        fault = ("--fault", f"compute:{slowdown}@rank5:step60") if slowdown != "1.0" else ()
        assert call(*simulate, *fault, "-o", whole)[0] == 0
        lines = whole.read_text().splitlines(keepends=True)
        with path.open("a") as file:
            file.writelines(lines[bool(number) :])
    report = replayed(call, path)
    assert {name: len(run["pages"]) for name, run in report["runs"].items()} == {
        "run-0": 1,
        "run-1": 0,
    }
    each_s = [run["recorded_s"] for run in report["runs"].values()]
    assert report["total"]["recorded_s"] == pytest.approx(sum(each_s))
    assert "all 2 runs, " in call("replay", path, "--would-have-paged")[1]
    assert list(replayed(call, path, "--run", "run-1")["runs"]) == ["run-1"]
    code, _, errors = call("replay", path, "--would-have-paged", "--run", "other")
    assert code == 2
    assert "--run: got 'other'; expected one of the 2 runs" in errors


# --- histories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        ("compute:1.25@rank5:step100-200",),
        ("ramp:1.3@rank5:step100",),
        ("flap:1.5@rank5:step60", "compute:1.15@rank9:step150"),
    ],
)
def test_a_history_and_the_telemetry_it_is_of_say_the_same(
    call: Call, tmp_path: Path, faults: tuple[str, ...]
) -> None:
    """Under the settings that the collector had: every page, its time and its words."""
    requests = requests_of(*faults)
    of_telemetry = replayed(call, recorded(tmp_path / "run", requests))
    of_history = replayed(call, kept(tmp_path / "history", requests))
    assert pages(of_history) == pages(of_telemetry)
    assert len(pages(of_history)) >= len(faults)
    assert of_history["total"]["recorded_s"] == pytest.approx(of_telemetry["total"]["recorded_s"])
    assert of_history["source"] == "history"


def test_a_history_is_decided_anew_and_says_what_cannot_be(
    call: Call, tmp_path: Path, config: Callable[[str], Path]
) -> None:
    """Settings of detection were those of the time; told by content, whatever the file's name."""
    requests = requests_of("compute:1.25@rank5:step100")
    path = kept(tmp_path / "run.csv", requests)
    assert pages(replayed(call, path, "--config", config("{page_slowdown: 1.4}"))) == []
    assert pages(replayed(call, path, "--config", config("{page_loss: 0.5}"))) == []
    assert len(pages(replayed(call, path, "--config", config("{min_slowdown: 1.4}")))) == 1
    output = call("replay", path, "--would-have-paged")[1]
    assert "confirmed when this was recorded, under the settings of that time" in output


def write_history(path: Path, *changes: Verdict) -> Path:
    history = History(path)
    history.open()
    history.put(changes=changes)
    history.close()
    return path


def change(state: Any, hour: float, **changes: Any) -> Verdict:
    reported: Json = {"slowdown": 1.5, "loss_share": 0.4, "gpu_seconds_lost_per_hour": 7200.0}
    return Verdict(
        run_id="job-7",
        subject_id="rank/5",
        scope="rank",
        cause="slow_gpu",
        state=state,
        at_ns=int(hour * HOUR_NS),
        **{**reported, **changes},
    )


def test_one_episode_is_one_page_however_it_wavers(call: Call, tmp_path: Path) -> None:
    """Until it has recovered; then the next is another."""
    path = write_history(
        tmp_path / "history",
        change("confirmed", 0.0, slowdown=1.05),
        change("confirmed", 1.0),
        change("confirmed", 2.0, slowdown=1.05),
        change("confirmed", 3.0),
        change("recovered", 5.0),
        change("suspect", 6.0),
        change("flapping", 7.0),
        change("recovered", 8.0),
    )
    report = replayed(call, path)
    assert [page["at_ns"] / HOUR_NS for page in pages(report)] == [1.0, 7.0]
    assert [page["gpu_hours_lost"] for page in pages(report)] == [8.0, 2.0]
    assert report["runs"]["job-7"]["per_cause"] == {
        "slow_gpu": {"pages": 2, "per_week": 2 * 7 * 24 / 8, "gpu_hours_lost": 10.0}
    }


def test_a_role_or_a_guess_never_pages(call: Call, tmp_path: Path) -> None:
    """Nor what cannot be localised, nor where peers were inferred."""
    for number, never in enumerate(
        ({"scope": "role"}, {"is_localised": False}, {"is_inferred": True}, {"loss_share": 0.001})
    ):
        reported = change("confirmed", 1.0)
        values = {name: getattr(reported, name) for name in Verdict.__slots__}
        path = write_history(tmp_path / f"h{number}", Verdict(**{**values, **never}))
        assert pages(replayed(call, path)) == []


def test_a_history_without_lost_shares_pages_as_it_did(call: Call, tmp_path: Path) -> None:
    """An older collector did not keep them."""
    unknown = {"loss_share": float("nan")}
    path = write_history(
        tmp_path / "history",
        change("confirmed", 1.0, pages=True, **unknown),
        change("recovered", 2.0, **unknown),
        change("confirmed", 3.0, pages=False, **unknown),
    )
    assert [page["at_ns"] / HOUR_NS for page in pages(replayed(call, path))] == [1.0]


def test_many_pages_show_the_newest(call: Call, tmp_path: Path) -> None:
    """Twenty of them; the table counts all, and a rate from days is no guess."""
    states = ("confirmed", "recovered")
    path = write_history(tmp_path / "history", *(change(states[n % 2], 2.0 * n) for n in range(60)))
    lines = call("replay", path, "--would-have-paged")[1].splitlines()
    assert lines[0] == "run job-7, 4.92 days recorded: 30 pages"
    assert "the newest 20 of 30 pages:" in lines
    assert sum("rank/5" in line for line in lines) == 20
    assert not any("guess" in line for line in lines)


def test_a_history_in_which_nothing_happened_says_so(call: Call, tmp_path: Path) -> None:
    """Exit code 0."""
    path = write_history(tmp_path / "history")
    code, output, _ = call("replay", path, "--would-have-paged")
    assert code == 0
    assert output.startswith(f"no runs in {path}")
    assert replayed(call, path)["runs"] == {}


# --- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def not_ours(tmp_path: Path) -> Path:
    path = tmp_path / "damaged"
    path.write_bytes(b"SQLite format 3\0 and then nothing of the kind")
    return path


def test_what_cannot_be_read_is_one_sentence(call: Call, tmp_path: Path, not_ours: Path) -> None:
    """Exit code 2."""
    for path, printed in (
        (tmp_path / "nowhere", "nowhere: got 'No such file or directory'"),
        (not_ours, "expected a history that can be read"),
    ):
        code, output, errors = call("replay", path, "--would-have-paged")
        assert (code, output) == (2, "")
        assert printed in errors
        assert len(errors.splitlines()) == 1


def test_without_a_question_there_is_no_answer(call: Call, tmp_path: Path) -> None:
    """And the message says which there is."""
    code, _, errors = call("replay", tmp_path / "run")
    assert code == 2
    assert "Nothing was asked: give --would-have-paged" in errors
