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
    folder: Path, slow: dict[int, float], *, steps: int = 3, seed: int = 0, idle: bool = False
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


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("slow", [{5: 0.3}, {1: 0.4, 6: 0.3}, {0: 0.5, 3: 0.3, 7: 0.4}, {}])
def test_planted_late_ranks_are_named_and_nobody_else(
    call: Call, tmp_path: Path, slow: dict[int, float], steps: int
) -> None:
    """In one iteration and in several, one or three at once."""
    write_job(tmp_path / "job", slow, steps=steps)
    code, out, _ = call(tmp_path / "job", "--json")
    report = json.loads(out)
    assert code == 0
    assert sorted(report["late_ranks"]) == sorted(slow)
    assert report["end_spread_s"] < 1e-6
    if not slow:
        assert report["answer"][0].startswith("No rank is late")


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
    write_job(folder, {5: 0.3}, steps=1)
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
