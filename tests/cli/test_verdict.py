"""``otel-straggler verdict``, against a real collector with a run whose slow rank is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from otel_straggler.cli import main
from otel_straggler.cli.explanation import explanation
from otel_straggler.cli.verdict_lines import verdict_lines
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.collector.views.report_json import RunReport, report_json
from otel_straggler.simulate.replay import Replay

from ..waiting import eventually

FREE = "127.0.0.1:0"
RUN = ["--ranks", "16", "--layout", "tp2,pp2,dp4", "--fault", "compute:1.3@rank5:step60",
       "--steps", "120"]  # fmt: skip
Verdict = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    """Its --metrics URL. Rank 5 is 1.3 times as slow as its three peers, from step 60 on."""
    running = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            scoring=ScoringSettings(grace_s=3.0),
        )
    )
    addresses = running.start()
    try:
        url = f"http://{addresses['otlp_http']}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Replay, "end", lambda *_: None)  # it is to be a run that goes on
            assert main(["simulate", *RUN, "--send", url]) == 0
        yield f"http://{addresses['metrics']}"
    finally:
        running.stop()


@pytest.fixture
def verdict(call: Any, collector: str) -> Verdict:
    def run(verb: str, *arguments: str) -> tuple[int, str, str]:
        answer: tuple[int, str, str] = call("verdict", verb, *arguments, "--collector", collector)
        return answer

    return run


@pytest.mark.parametrize(
    "command",
    [
        ("verdict", "explain", "5", "--run", "another"),
        ("verdict", "explain", "hang", "--run", "another"),
        ("verdict", "mute", "hang", "--for", "1h", "--reason", "x", "--run", "another"),
        ("top", "--once", "--run", "another"),
        ("report", "another"),
        ("goodput", "another"),
        ("hang", "stacks", "--run", "another"),
    ],
    ids=" ".join,
)
def test_an_unknown_run_is_said_to_be_unknown(
    call: Any, collector: str, command: tuple[str, ...]
) -> None:
    """By every command that takes one, with those that there are."""
    code, out, err = call(*command, "--collector", collector)
    assert (code, out) == (2, "")
    assert "got 'another'; expected one of: simulated" in err
    assert err.count("\n") == 1


def test_a_run_that_does_not_hang_has_no_hang_to_explain(verdict: Verdict) -> None:
    code, out, err = verdict("explain", "hang")
    assert (code, out) == (2, "")
    assert "got 'hang'; expected a run that is stuck or lost" in err


@pytest.fixture(autouse=True)
def _confirmed(verdict: Verdict) -> None:
    def is_all_known() -> bool:
        code, output, _ = verdict("explain", "rank/node-0/5", "--json")
        reported = json.loads(output) if code == 0 else {}
        return (
            code == 0
            and reported["verdict"]["state"] == "confirmed"
            and reported["last_step"] >= 79
        )

    eventually(is_all_known)


def test_it_shows_the_numbers_of_the_subject_and_of_its_peers(verdict: Verdict) -> None:
    """The three ranks that differ in the data dimension only, and nobody else."""
    code, output, _ = verdict("explain", "5")
    assert code == 0
    assert "rank 5 on node-0 takes 1.2" in output
    assert "the median of 3 peers, in the whole step" in output
    assert "since        step 6" in output
    assert "peers: pipeline 0, tensor 1" in output
    _, _, table = output.partition("of the peers' median\n")
    rows = [line.replace(">", " ").split() for line in table.splitlines()[:4]]
    assert rows[0][0] == "5"
    assert {row[0] for row in rows} == {"1", "3", "5", "7"}
    assert 1.2 < float(rows[0][-1].rstrip("x")) < 1.4
    assert "confirmed" in output.partition("Changes of state")[2]


def test_scripts_get_the_same_as_json(verdict: Verdict) -> None:
    """With the times of all peers, however many."""
    code, output, _ = verdict("explain", "rank/node-0/5", "--json")
    reported = json.loads(output)
    assert code == 0
    assert reported["verdict"]["subject_id"] == "rank/node-0/5"
    assert sorted(t["rank"] for t in reported["times"]) == ["1", "3", "5", "7"]
    assert [t["rank"] for t in reported["times"] if t["is_subject"]] == ["5"]
    assert reported["changes"][-1]["state"] == "confirmed"


def test_a_dismissed_verdict_calls_nobody_until_it_is_restored(
    verdict: Verdict, call: Any, collector: str
) -> None:
    """``top`` and ``explain`` say so, with the reason."""
    code, output, _ = verdict("dismiss", "5", "--reason", "a profiler ran")
    assert (code, output) == (0, "dismissed: rank/node-0/5 in run simulated\n")

    def top() -> str:
        printed: str = call("top", "--once", "--collector", collector)[1]
        return printed

    eventually(lambda: "confirmed, dismissed: rank 5" in top())
    assert "does not page" in (output := verdict("explain", "5")[1])
    assert ": a profiler ran" in output
    assert verdict("restore", "5", "--reason", "it was real")[0] == 0
    eventually(lambda: "confirmed, pages: rank 5" in top())
    assert verdict("mute", "5", "--for", "90m", "--reason", "tonight")[0] == 0
    eventually(lambda: "confirmed, muted: rank 5" in top())
    assert verdict("restore", "5", "--reason", "done")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("explain", "99"), "SUBJECT: got '99'; expected one of: rank/node-0/5 (run simulated)"),
        (("mute", "5", "--reason", "x", "--for", "8x"), "--for: got '8x'; expected a number and s"),
        (("mute", "5", "--reason", "x", "--for", "31d"), "seconds: got 2678400.0; expected 1 to"),
        (("dismiss", "5", "--reason", " "), "reason: got ' '; expected a text of 1 to 500"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    verdict: Verdict, arguments: tuple[str, ...], printed: str
) -> None:
    """With what was expected."""
    code, output, errors = verdict(*arguments)
    assert (code, output) == (2, "")
    assert printed in errors
    assert errors.count("\n") == 1


def test_a_collector_that_is_not_there_is_named(call: Any) -> None:
    """Exit code 2, no traceback."""
    code, _, errors = call("verdict", "explain", "5", "--collector", "http://127.0.0.1:9")
    assert code == 2
    assert "http://127.0.0.1:9/v1/report" in errors


def test_a_name_of_two_verdicts_must_be_told_apart(call: Any, by_hand: Any) -> None:
    """Rank 5 of one run, and of another."""
    from otel_straggler.cli.verdict import _result
    from otel_straggler.errors import ConfigError

    run_verdicts = by_hand.run_verdicts(by_hand.verdict())
    report = report_json({name: RunReport(run_verdicts=run_verdicts) for name in ("a", "b")})
    with pytest.raises(ConfigError, match=r"gpu:GPU-5 \(run a\), gpu:GPU-5 \(run b\)"):
        _result(report, "5", None)
    assert _result(report, "5", "b")[0] == "b"


def test_of_several_runs_the_one_that_trains_is_meant_or_to_read_it_the_newest(
    by_hand: Any,
) -> None:
    """As in the second hour with a collector: the runs of before are still known."""
    from otel_straggler.cli.verdict import _result
    from otel_straggler.errors import ConfigError

    at_ns = {"old": 1, "new": 3, "now": 2}
    run_verdicts = {
        name: by_hand.run_verdicts(by_hand.verdict(at_ns=ns)) for name, ns in at_ns.items()
    }
    report = report_json(
        {name: RunReport(run_verdicts=reported) for name, reported in run_verdicts.items()}
    )
    for name in ("old", "new"):
        report["runs"][name]["liveness"] = [{"group": "", "state": "finished"}]
    assert _result(report, "5", None)[0] == "now"
    del report["runs"]["now"]
    assert _result(report, "5", None, or_newest=True)[0] == "new"
    with pytest.raises(ConfigError, match="Name one of them, and its --run"):
        _result(report, "5", None)


def test_a_host_a_role_and_a_verdict_without_a_window_are_explained(by_hand: Any) -> None:
    """What is not known is left out."""
    reported = {"subject_id": "host:node-1", "scope": "host", "rank": None, "own_s": float("nan")}
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(**reported), by_hand.verdict(subject_id="x", scope="run")
    )
    run = report_json({"run": RunReport(run_verdicts=run_verdicts)})["runs"]["run"]
    for verdict in run["verdicts"]:
        result = explanation("run", run, verdict)
        assert result.as_json()["times"] == []
        assert list(verdict_lines(run))


def test_a_window_from_before_the_change_is_said_to_be_one(by_hand: Any, capsys: Any) -> None:
    """Verdicts come sooner than the scores of their window."""
    run_verdicts = by_hand.run_verdicts(by_hand.verdict(since_step=40))
    run = report_json({"run": RunReport(run_verdicts=run_verdicts)})["runs"]["run"]
    window = {
        "group": "", "first_step": 0, "last_step": 19, "sections": {"forward": "compute"},
        "ranks": {str(r): {"node": "node-1", "role": "default"} for r in (5, 6)},
        "section_step_s": {"forward": {"5": 0.1, "6": 0.1}},
    }  # fmt: skip
    for last_step, is_text in ((19, True), (59, False)):
        run["windows"] = [window | {"last_step": last_step}]
        Console(width=120).print(explanation("run", run, run["verdicts"][-1]))
        assert ("ends before the change began" in capsys.readouterr().out) == is_text
