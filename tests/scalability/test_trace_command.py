"""``otel-straggler trace``: the ranks of a profiled job compared."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otel_straggler.cli import main

from ..recordings.shared_data import shared
from .made import kernel, step, trace_text

Call = Callable[..., tuple[int, str, str]]
RANKS, WORK_US = 8, 10_000.0
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["trace", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return run


def write_job(
    folder: Path, slow: dict[int, float], *, steps: int = 4, seed: int = 0, idle: bool = False
) -> None:
    """Four collectives a step; slow ranks compute longer, or idle longer. Clocks are seconds apart,
    and every file is gzipped."""
    rng = np.random.default_rng(seed)
    clock = rng.uniform(0.0, 5e6, RANKS)
    events: list[list[dict[str, object]]] = [[] for _ in range(RANKS)]
    left = 0.0
    for number in range(steps):
        begin = left
        for _ in range(4):
            wanted = WORK_US * rng.normal(1.0, 0.02, RANKS)
            late = np.array([WORK_US * slow.get(rank, 0.0) for rank in range(RANKS)])
            arrived = left + wanted + late
            last = arrived.max() + WORK_US / 10
            for rank in range(RANKS):
                busy = wanted[rank] + (0.0 if idle else late[rank])
                at = clock[rank] + arrived[rank] - busy
                events[rank] += [
                    kernel("gemm", at, busy),
                    kernel(ALL_REDUCE, clock[rank] + arrived[rank], last - arrived[rank], stream=9),
                ]
            left = last
        for rank in range(RANKS):
            events[rank] += step(number, clock[rank] + begin - 1.0, left - begin)
    folder.mkdir(exist_ok=True)
    for rank in range(RANKS):
        text = trace_text(events[rank], rank, RANKS)
        (folder / f"rank-{rank}.json.gz").write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize("steps", [4, 9])
@pytest.mark.parametrize("slow", [{5: 0.3}, {1: 0.4, 6: 0.3}, {0: 0.5, 3: 0.3, 7: 0.4}, {}])
def test_planted_late_ranks_are_named_and_nobody_else(
    call: Call, tmp_path: Path, slow: dict[int, float], steps: int
) -> None:
    """In three whole steps and in eight, one or three at once; the last step does not count."""
    write_job(tmp_path / "job", slow, steps=steps)
    code, out, _ = call(tmp_path / "job", "--json")
    report = json.loads(out)
    assert code == 0
    assert sorted(report["late_ranks"]) == sorted(slow)
    assert report["end_spread_s"] < 1e-6
    if not slow:
        assert report["answer"][0].startswith("No rank is late")


@pytest.mark.parametrize(
    ("steps", "known"),
    [(1, "4 collectives in 1 whole step"), (3, "8 collectives in 2 whole steps")],
)
def test_nobody_is_named_from_too_little(
    call: Call, tmp_path: Path, steps: int, known: str
) -> None:
    """Neither as late, nor by scores or kernels, nor on the page; and it says what to record."""
    write_job(tmp_path / "job", {5: 0.5}, steps=steps)
    code, out, _ = call(tmp_path / "job", "--html", tmp_path / "trace.html")
    assert code == 0
    assert f"Nobody is named: there are {known} in these traces" in out
    assert 'ots.profile("prof", active=' in out
    assert not re.search(r"[Rr]ank 5|suspect|straggler|5 <", out)
    page = (tmp_path / "trace.html").read_text()
    assert "Nobody is named" in page
    assert 'class="late"' not in page
    assert 'class="slow"' not in page
    _, out, _ = call(tmp_path / "job", "--json")
    report = json.loads(out)
    assert (report["is_enough"], report["late_ranks"], report["kernels"]) == (False, [], [])
    assert report["scores"] is None


def test_enough_steps_with_few_collectives_say_how_many_more(call: Call, tmp_path: Path) -> None:
    """Two collectives in each of four whole steps: it takes six, the last of which is left out."""
    for rank in range(3):
        events = []
        for number in range(5):
            at = 1_000.0 * number
            events += step(number, at, 1_000.0)
            events += [kernel(ALL_REDUCE, at + part + 50.0 * (rank == 2), 90.0, stream=9)
                       for part in (300.0, 600.0)]  # fmt: skip
        (tmp_path / f"rank{rank}.json").write_text(trace_text(events, rank, 3))
    _, out, _ = call(tmp_path)
    assert "there are 8 collectives in 4 whole steps" in out
    assert 'ots.profile("prof", active=6)' in out


def test_files_of_a_profile_next_to_its_traces_are_passed_over(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a note, by ``trace`` as by ``score``; those of others still get one."""
    write_job(tmp_path / "job", {5: 0.5})
    for name in ("profiler_list.dat", "stacks.txt", "profiler_ds.txt"):
        (tmp_path / "job" / f"run.attempt0.rank1.steps11-18.{name}").write_text("aten::mm 1,2\n")
    code, _, err = call(tmp_path / "job")
    assert code == 0
    assert "run.attempt0" not in err
    assert main(["score", str(tmp_path / "job")]) == 0
    assert "run.attempt0" not in capsys.readouterr().err
    (tmp_path / "job" / "stacks.text").write_text("aten::mm 1,2\n")
    assert "stacks.text: no trace" in call(tmp_path / "job")[2]


def test_a_verdict_says_when_kernels_take_longer_and_when_the_gpu_idles(
    call: Call, tmp_path: Path
) -> None:
    """The two lead to different people."""
    write_job(tmp_path / "kernels", {5: 0.3})
    _, out, _ = call(tmp_path / "kernels")
    assert "Rank 5 is late, and the others wait for it." in out
    assert re.search(r"its kernels compute 1\.(29|30|31)x as long as its peers'", out)
    write_job(tmp_path / "host", {5: 0.3}, idle=True)
    _, out, _ = call(tmp_path / "host")
    assert "its GPU idles" in out
    assert "look at its host and its data loading" in out


def test_the_page_holds_the_verdict_and_makes_no_requests(call: Call, tmp_path: Path) -> None:
    """One file; names are text in it."""
    write_job(tmp_path / "<b>job", {1: 0.4, 6: 0.3})
    code, _, _ = call(tmp_path / "<b>job", "--html", tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text()
    assert code == 0
    assert "Ranks 1, 6 are late, and the others wait for them." in page
    assert page.count('class="late"') == 2
    assert "&lt;b&gt;job" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "http:" not in page.replace("http-equiv", "")


def test_published_traces_show_their_known_shares(call: Call) -> None:
    """Two of 128 ranks, whose few collectives are not the same."""
    code, out, _ = call(shared("kineto_two_ranks"), "--json")
    report = json.loads(out)
    assert code == 0
    assert [round(100 * each["idle"], 2) for each in report["ranks"]] == [53.56, 54.72]
    assert report["late_ranks"] == []


def test_what_is_damaged_empty_or_foreign_gets_an_answer(call: Call, tmp_path: Path) -> None:
    """With notes, and the rest compared."""
    folder = tmp_path / "job"
    write_job(folder, {5: 0.3})
    whole = gzip.decompress((folder / "rank-7.json.gz").read_bytes()).decode()
    (folder / "rank-7.json.gz").write_bytes(gzip.compress(whole[: len(whole) * 3 // 4].encode()))
    (folder / "empty.json").write_text("")
    (folder / "notes.txt").write_text("hello,world\n1,2\n")
    (folder / "copy.json").write_text(whole)
    (folder / "rank-8.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    code, out, err = call(folder)
    assert code == 0
    assert "Rank 5 is late" in out
    assert "cut off" in err
    assert "empty.json: skipped" in err
    assert "notes.txt: no trace of torch.profiler but csv; skipped" in err
    assert "rank 7 is that of" in err


def test_a_trace_without_a_rank_or_kernels_has_an_answer(call: Call, tmp_path: Path) -> None:
    """Also one alone."""
    path = tmp_path / "trace.json"
    path.write_text(trace_text([kernel("gemm", 0, 10)]))
    code, out, err = call(path)
    assert code == 0
    assert "One rank alone" in out
    assert "neither the trace nor the file name says which rank it is" in err
    path.write_text(trace_text(step(1, 0, 10)))
    code, out, _ = call(path)
    assert (code, "Nothing ran in these traces" in out) == (0, True)
    path.write_text(
        trace_text([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9}])
    )
    code, out, _ = call(path, "--json")
    assert (code, json.loads(out)["ranks"][0]["on_gpu"]) == (0, False)


def test_without_any_trace_it_says_how_to_write_one(call: Call, tmp_path: Path) -> None:
    """No traceback."""
    code, _, err = call(tmp_path)
    assert code == 2
    assert "tensorboard_trace_handler" in err
    code, _, err = call(tmp_path / "nowhere")
    assert code == 2
    assert "no such file or folder" in err


def test_sections_and_kernels_are_scored_with_the_sentences_of_a_recorded_run(
    call: Call, tmp_path: Path
) -> None:
    """Those of ``score`` and of a live run."""
    write_job(tmp_path / "job", {5: 0.5})
    code, out, err = call(tmp_path / "job")
    assert code == 0
    assert "rank 5: its GPU kernels take 1.5" in out
    assert re.search(
        r"rank 5: kernel gemm takes 1\.5\dx the fastest rank \(1\d\.\d ms against", out
    )
    assert "suspect: rank 5 takes 1." in out
    assert "only large slowdowns can show" in err
    _, out, _ = call(tmp_path / "job", "--json")
    report = json.loads(out)
    (window,) = report["scores"]["windows"]
    assert [s["rank"] for s in window["stragglers"]] == [5]
    (kernel_score,) = report["kernels"]
    assert (kernel_score["name"], kernel_score["rank"]) == ("gemm", 5)
    assert kernel_score["score"] == pytest.approx(1 / 1.5, rel=0.05)


def test_score_and_trace_agree(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit, as both read the same rows; of ranks that are slow by chance, that is not
    in nearly every step, only ``score`` speaks."""
    write_job(tmp_path / "job", {1: 0.4})
    _, out, _ = call(tmp_path / "job", "--json")
    assert main(["score", str(tmp_path / "job"), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"].values()
    scores = json.loads(out)["scores"]
    (window,), (scored,) = scores["windows"], run["windows"]
    assert all(each in scored["stragglers"] for each in window["stragglers"])
    assert window.pop("by_chance") == len(scored["stragglers"]) - len(window["stragglers"])
    for each in (window, scored):
        del each["stragglers"], each["largest_excess"]
    assert scores == run


def merge(folder: Path, path: Path, label: Callable[[int, object], object]) -> None:
    """All traces of a folder in one, with other process ids."""
    events: list[dict[str, object]] = []
    for rank, file in enumerate(sorted(folder.iterdir())):
        document = json.loads(gzip.decompress(file.read_bytes()))
        events += [{**e, "pid": label(rank, e["pid"])} for e in document["traceEvents"]]
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))


def test_a_merged_trace_gives_the_same_as_one_file_per_rank(call: Call, tmp_path: Path) -> None:
    """The processes of the host and the GPU are labeled."""
    write_job(tmp_path / "job", {1: 0.4, 6: 0.3})
    merge(tmp_path / "job", tmp_path / "merged.json", lambda rank, pid: f"rank{rank} {pid}")
    _, out, _ = call(tmp_path / "job", "--json")
    _, merged, err = call(tmp_path / "merged.json", "--json")
    both = json.loads(out), json.loads(merged)
    assert both[0]["late_ranks"] == both[1]["late_ranks"] == [1, 6]
    assert both[0]["kernels"] == both[1]["kernels"]
    rows = [[{k: v for k, v in row.items() if k != "file"} for row in b["ranks"]] for b in both]
    assert rows[0] == rows[1]
    assert "nothing says" not in err


def test_processes_without_a_label_are_named_by_their_ids(call: Call, tmp_path: Path) -> None:
    """With a note; here of the host alone, which gloo's annotations make comparable."""
    events = []
    for process, late in ((41, 0.0), (42, 0.0), (43, 3_000.0), (44, 0.0)):
        for number in range(12):
            begin = number * 10_000.0
            events += step(number, begin, 9_000.0)
            at = begin + 2_000.0 + late + 10.0 * process
            events.append({"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce",
                           "ts": at, "dur": begin + 8_000.0 - at, "pid": 1, "tid": 2})  # fmt: skip
            events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": begin,
                           "dur": at - begin, "pid": 1, "tid": 1})  # fmt: skip
        for event in events:
            event["pid"] = process if event["pid"] == 1 else event["pid"]
    (tmp_path / "merged.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    code, out, err = call(tmp_path / "merged.json")
    assert code == 0
    assert "nothing says which rank processes 41, 42, 43, 44 are: their ids stand for ranks" in err
    assert "Rank 43 is late" in out


def test_a_trace_without_steps_is_scored_as_one(call: Call, tmp_path: Path) -> None:
    """A profiler without a schedule writes no ProfilerStep."""
    for rank, factor in enumerate((1.0, 1.0, 2.0)):
        events = [kernel("gemm", 100.0 * n, 30.0 * factor) for n in range(12)]
        events += [kernel(ALL_REDUCE, 100.0 * n + 60, 9.0, stream=9) for n in range(12)]
        (tmp_path / f"rank{rank}.json").write_text(trace_text(events, rank, 3))
    code, out, err = call(tmp_path)
    assert code == 0
    assert "rank 2: kernel gemm takes 2.00x the fastest rank (60.0 us against 30.0 us)" in out
    assert "skipped" not in err


def test_a_folder_may_name_the_rank(call: Call, tmp_path: Path) -> None:
    """As itwinai and some launchers lay traces out."""
    for rank in (0, 1):
        folder = tmp_path / ("worker_0" if rank == 0 else "rank1")
        folder.mkdir()
        (folder / "trace.json").write_text(trace_text([kernel("gemm", 0, 9)]))
    _, out, _ = call(tmp_path, "--json")
    assert [each["rank"] for each in json.loads(out)["ranks"]] == [0, 1]


# --- damage --------------------------------------------------------------------------------------

_ODD = [None, float("nan"), float("inf"), -1, -1e300, 1e300, 0, 2**70, "", "x", "9", [], {}, True]


def damaged(rng: np.random.Generator, folder: Path) -> None:
    """A job of two small traces of which one has odd values, bytes, or is cut off."""
    folder.mkdir()
    for rank in (0, 1):
        events = [
            *step(1, 0, 900), *step(2, 900, 900),
            *(kernel("gemm", 100.0 * n, 30.0 + rank, correlation=n) for n in range(9)),
            *(kernel(ALL_REDUCE, 100.0 * n + 50, 40.0, Seq=n) for n in range(9)),
        ]  # fmt: skip
        document = json.loads(trace_text(events, rank, 2))
        for _ in range(rank * int(rng.integers(0, 9))):
            _spoil(rng, document)
        content = json.dumps(document).encode()
        if rank and rng.random() < 0.4:
            content = content[: int(rng.integers(0, len(content)))]
        if rank and rng.random() < 0.3:
            content = gzip.compress(content)[: int(rng.integers(1, 600))]
        if rank and rng.random() < 0.4 and content:
            changed = bytearray(content)
            for at in rng.integers(0, len(content), 5).tolist():
                changed[at] = int(rng.integers(0, 256))
            content = bytes(changed)
        (folder / f"{rank}.json").write_bytes(content)


def _spoil(rng: np.random.Generator, document: dict[str, object]) -> None:
    """Replace, repeat or remove one thing."""
    events = document["traceEvents"]
    odd = _ODD[int(rng.integers(len(_ODD)))]
    kind = int(rng.integers(5))
    if kind == 0 or not isinstance(events, list) or not events:
        document[str(rng.choice(["traceEvents", "distributedInfo", "schemaVersion"]))] = odd
        return
    at = int(rng.integers(len(events)))
    event = events[at]
    if kind == 1:
        events[at] = odd
    elif kind == 2:
        events.insert(0, event)
    elif isinstance(event, dict) and event:
        target = event
        if kind == 3 and isinstance(event.get("args"), dict) and event["args"]:
            target = event["args"]
        target[str(rng.choice(list(target)))] = odd


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_trace_holds_there_is_an_answer(call: Call, tmp_path: Path, seed: int) -> None:
    """No traceback, and a page and JSON that can be read."""
    damaged(np.random.default_rng(seed), tmp_path / "job")
    page = tmp_path / "trace.html"
    code, out, err = call(tmp_path / "job", "--html", page, "--json")
    assert code == 0, err
    assert json.loads(out)["answer"][0].endswith((".", "?"))
    assert page.read_text().endswith("</body></html>\n")
    code, out, err = call(tmp_path / "job" / "1.json")
    assert code in (0, 2)
    assert (out if code == 0 else err).strip()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "content", ["null", "3", '"a"', "{}", "[]", "[1, 2]", "{", "", " ", "\x00"]
)
def test_a_file_that_is_no_trace_gets_a_sentence(call: Call, tmp_path: Path, content: str) -> None:
    """With the name of the file, and what to write instead."""
    (tmp_path / "rank0.json").write_text(content)
    code, out, err = call(tmp_path)
    assert (code, out) == (2, "")
    assert "rank0.json: " in err
    assert "tensorboard_trace_handler" in err
