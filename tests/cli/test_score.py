"""``otel-straggler score``: recorded runs in, tables and JSON out."""

import json

import pytest

from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import write_csv


def windows_of(output: str, run_id: str = "simulated") -> list[dict]:
    return json.loads(output)["runs"][run_id]["windows"]


def test_verdicts_stand_below_the_table_dearest_first(call, recorded, by_hand, monkeypatch) -> None:
    """Sentences, what the run loses, then the scores; the same in the JSON."""
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict("suspect", subject_id="s", sentence="rank 3 may be slow"),
        by_hand.verdict(gpu_seconds_lost_per_hour=3600.0),
        worlds=(by_hand.world(),),
    )
    monkeypatch.setattr(Scorer, "verdicts", lambda *_: run_verdicts)
    code, output, _ = call("score", recorded())
    assert code == 0
    reported = [
        f"confirmed, pages: {by_hand.sentence[:80]}",
        "suspect: rank 3 may be slow",
        "the run takes 1.18x as long as it could: stage imbalance",
        "rank 5 on node-1: forward takes 1.5",
    ]
    destinations = [output.index(text) for text in reported]
    assert destinations == sorted(destinations)
    run = json.loads(call("score", recorded(), "--json")[1])["runs"]["simulated"]
    assert [verdict["state"] for verdict in run["verdicts"]] == ["suspect", "confirmed"]
    assert run["run"]["slowdown"] == 1.18


def test_a_verdict_and_no_low_score_do_not_contradict_each_other(
    call, recorded, by_hand, monkeypatch
) -> None:
    """A slowdown of 10 % is confirmed though every score is above the threshold."""
    monkeypatch.setattr(Scorer, "verdicts", lambda *_: by_hand.run_verdicts(by_hand.verdict()))
    _, output, _ = call("score", recorded("healthy"))
    assert "no straggler" not in output
    assert "every score is at or above the threshold" in output


def test_settings_of_verdicts_come_from_the_collectors_file(
    call, recorded, tmp_path, monkeypatch
) -> None:
    """One file for both."""
    given = []
    really = Scorer.__init__
    monkeypatch.setattr(
        Scorer, "__init__", lambda self, *args: given.append(args[1]) or really(self, *args)
    )
    config = tmp_path / "c.yaml"
    config.write_text("verdicts: {min_slowdown: 1.2, windows_steps: [10, 50]}\n")
    assert call("score", recorded(), "--config", config)[0] == 0
    assert given == [VerdictSettings(min_slowdown=1.2, windows_steps=(10, 50))]


def test_victims_that_wait_are_never_listed(call, recorded) -> None:
    """Seven of eight ranks wait in gradient_sync; only the eighth is slow."""
    window = windows_of(call("score", recorded(), "--json")[1])[-1]
    assert {(s["rank"], s["section"]) for s in window["stragglers"]} == {(5, "forward")}
    assert window["sections"]["gradient_sync"] == "wait"


def test_the_json_report_has_the_published_shape(call, recorded) -> None:
    """Scripts rely on these keys."""
    report = json.loads(call("score", recorded(steps=30), "--json")[1])
    assert report["schema_version"] == 1
    run = report["runs"]["simulated"]
    assert isinstance(run["verdicts"], list)
    assert set(run["run"]) >= {
        "slowdown", "waste", "m_w", "m_s", "cause", "resolvable_slowdown", "coverage",
    }  # fmt: skip
    (window,) = run["windows"]
    assert (window["first_step"], window["last_step"]) == (0, 29)
    assert set(window["section_relative_scores"]["forward"]) == {str(r) for r in range(8)}
    assert window["gpu_relative_scores"]["0"] is None
    assert set(window["stragglers"][0]) >= {"rank", "node", "section", "kind_of_score", "score"}
    assert window["largest_excess"]["rank"] == 5


def test_window_steps_shapes_the_windows(call, recorded) -> None:
    """All windows are in the JSON, in order; without the option there is one."""
    path = recorded(steps=50)
    windows = windows_of(call("score", path, "--window-steps", 20, "--json")[1])
    assert [(w["first_step"], w["last_step"]) for w in windows] == [(0, 19), (20, 39), (40, 49)]
    assert len(windows_of(call("score", path, "--json")[1])) == 1


def test_the_threshold_decides_who_is_listed(call, recorded) -> None:
    """1.5x slower is a score of 0.67."""
    path = recorded()
    assert windows_of(call("score", path, "--threshold", "0.5", "--json")[1])[0]["stragglers"] == []


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--threshold", "0", "above 0 and at most 1"),
        ("--threshold", "1.5", "above 0 and at most 1"),
        ("--threshold", "nan", "above 0 and at most 1"),
        ("--window-steps", "0", "at least 1"),
    ],
)
def test_a_setting_out_of_range_is_refused(call, recorded, option, value, expected) -> None:
    """The message names the option, the value and the range."""
    code, _, errors = call("score", recorded(), option, value)
    assert code == 2
    assert errors.startswith(f"otel-straggler: error: {option}: got ")
    assert expected in errors


def test_standard_input_is_read(otel_straggler, recorded) -> None:
    """``-`` or nothing."""
    content = recorded().read_bytes()
    for arguments in (("score",), ("score", "-")):
        answer = otel_straggler(*arguments, input=content)
        assert answer.returncode == 0
        assert b"rank 5 on node-1: forward" in answer.stdout


def test_a_simulated_run_can_be_piped_into_score(otel_straggler) -> None:
    """The line of the README."""
    for form in ("csv", "otlp-json", "otlp-proto"):
        run = otel_straggler("simulate", "--ranks", "8", "--slow-rank", "5", "--format", form)
        answer = otel_straggler("score", "-", input=run.stdout)
        assert b"rank 5 on node-1: forward takes 1.5" in answer.stdout


def test_missing_ranks_are_told(otel_straggler) -> None:
    """From the world size, or from the gap in the numbers."""
    run = otel_straggler("simulate", "--scenario", "missing_rank", "--format", "otlp-json")
    answer = otel_straggler("score", input=run.stdout)
    assert b"no data from rank 5 (8 ranks expected)" in answer.stdout
    run = otel_straggler("simulate", "--scenario", "missing_rank")
    answer = otel_straggler("score", input=run.stdout)
    assert b"no data from rank 5, to judge by the numbers" in answer.stdout


def test_of_a_thousand_ranks_only_the_worst_are_shown(call, recorded) -> None:
    """And how many more there are."""
    _, output, _ = call("score", recorded(ranks=1200, steps=2, slow_rank=1100))
    assert len(output.splitlines()) < 40
    assert "1,180 more ranks, none of them slower than these" in output
    assert "rank 1100 on node-275: forward" in output


def test_several_runs_in_a_file_are_scored_apart(call, tmp_path) -> None:
    """Each has its own table."""
    path = tmp_path / "runs.csv"
    first = "".join(write_csv([simulate("healthy", Plan(run_id="a")).batch]))
    second = "".join(write_csv([simulate("one_slow_rank", Plan(run_id="b")).batch]))
    path.write_text(first + second.split("\n", 1)[1])
    report = json.loads(call("score", path, "--json")[1])
    assert report["runs"]["a"]["windows"][0]["stragglers"] == []
    assert report["runs"]["b"]["windows"][0]["stragglers"][0]["rank"] == 5


def test_a_clash_is_shown_and_never_mixed(call, recorded) -> None:
    """One process is scored; that the other exists is said in the report and the table."""
    path = recorded(ranks=4, slow_rank=1)
    rows = path.read_text().splitlines()
    again = [row.replace("node-0", "node-7") for row in rows if row.startswith("simulated,2,")]
    path.write_text("\n".join([*rows, *again]))
    code, output, errors = call("score", path)
    assert code == 0
    assert "clash: rank 2 on node-0" in output
    assert "rows left out: a newer process claims the same rank" in errors
    clashes = json.loads(call("score", path, "--json")[1])["runs"]["simulated"]["clashes"]
    assert [(c["rank"], c["node"]) for c in clashes] == [(2, "node-0"), (2, "node-7")]


def test_rows_out_of_order_are_scored_alike(call, recorded) -> None:
    """The order is that of the starts, not that of the file."""
    path = recorded(steps=40)
    before = call("score", path, "--window-steps", 20, "--json")[1]
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(rows)]))
    after = windows_of(call("score", path, "--window-steps", 20, "--json")[1])
    for now, then in zip(after, windows_of(before), strict=True):
        assert now["section_relative_scores"] == then["section_relative_scores"]


def test_kernel_rows_give_gpu_scores(call, tmp_path) -> None:
    """A rank whose kernels take twice as long scores one half."""
    path = tmp_path / "kernels.csv"
    lines = ["run_id,rank,node,role,section,kind,step,start_ns,duration_s,kernel"]
    for step in range(10):
        for rank, kernel_s in ((0, 0.001), (1, 0.002)):
            at = f"run-1,{rank},n,default,forward,compute,{step},{step * 10**9}"
            lines += [f"{at},0.1,", f"{at},{kernel_s},gemm"]
    path.write_text("\n".join(lines))
    window = windows_of(call("score", path, "--json")[1], "run-1")[0]
    assert window["gpu_relative_scores"] == {"0": 1.0, "1": 0.5}
    assert "rank 1 on n: its GPU kernels take 2.00x the fastest rank" in call("score", path)[1]


def test_names_of_others_cannot_control_the_terminal(call, tmp_path) -> None:
    """Control characters of a section name are shown as question marks."""
    path = tmp_path / "evil.csv"
    text = "".join(write_csv([simulate("healthy", Plan(ranks=6, steps=2)).batch]))
    path.write_text(text.replace("forward", "for\x1b[2Jward[bold]"))
    _, output, _ = call("score", path)
    assert "\x1b[2J" not in output
    assert "for?[2Jward[bold]" in output
