"""``otel-straggler scalability``: tables, plots, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from otel_straggler.cli import main
from otel_straggler.cli.scalability import shown_progress

from .made import kernel, step, trace_text

EPOCH_S = {
    "deepspeed": (59.01, 31.37, 17.86, 9.48),
    "horovod": (59.77, 34.91, 21.95, 16.75),
    "torch-ddp": (72.92, 48.62, 19.26, 10.30),
}
"""The example of itwinai's documentation, for 1, 2, 4 and 8 nodes."""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Runs the verb in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["scalability", *arguments])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    """The folder of itwinai's example, as its trainers write it."""
    folder = tmp_path / "scalability-metrics" / "epoch-time"
    folder.mkdir(parents=True)
    for strategy, times in EPOCH_S.items():
        for nodes, epoch_s in zip((1, 2, 4, 8), times, strict=True):
            content = f"epoch_id,time,name,nodes\n1,{epoch_s},{strategy},{nodes}\n"
            (folder / f"{strategy}_{nodes}.csv").write_text(content)
    return folder.parent


def test_the_default_is_what_itwinai_writes_and_where_it_plots(
    call: Call, metrics: Path, tmp_path: Path
) -> None:
    """The example of its documentation, with the speedups of its plot."""
    pytest.importorskip(
        "matplotlib",
        reason="matplotlib is not installed: it is needed to show that plots are written",
    )
    code, out, err = call()
    assert code == 0, err
    for speedup in ("1.881", "3.304", "6.225", "1.712", "2.723", "3.568", "3.786", "7.080"):
        assert speedup in out
    assert "deepspeed: at 16 nodes the epoch time would be 6.08 s (95 %: 3.81 s to 8.35 s)" in out
    names = {"absolute_epoch_time.png", "relative_epoch_time_speedup.png", "efficiency_plot.png"}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == names
    assert all((tmp_path / "plots" / name).read_bytes()[:4] == b"\x89PNG" for name in names)


def test_csv_and_json_hold_what_the_table_shows(call: Call, metrics: Path, tmp_path: Path) -> None:
    """With nulls and empty cells for what is not known."""
    arguments = ("--plot-dir", "", "--csv", "a.csv", "--json", "a.json")
    code, _, _ = call(str(metrics), *arguments)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert len(rows) == 12
    row = next(r for r in rows if (r["strategy"], r["size"]) == ("horovod", "8"))
    assert (row["speedup"], row["energy_wh"], row["unit"]) == ("3.56836", "", "nodes")
    document = json.loads((tmp_path / "a.json").read_text())
    points = {(p["strategy"], p["size"]): p for p in document["points"]}
    assert points["horovod", 8]["speedup"] == {
        "mean": pytest.approx(3.568, abs=1e-3),
        "deviation": None,
    }
    assert points["horovod", 8]["gpu_time"] is None
    assert {p["size"] for p in document["projections"]} == {16}


def test_json_on_standard_output_is_alone_there(call: Call, metrics: Path) -> None:
    """For a pipe."""
    code, out, _ = call("--plot-dir", "", "--json", "-")
    assert code == 0
    assert json.loads(out)["schema_version"] == 1


def test_only_named_runs_are_compared(call: Call, metrics: Path) -> None:
    """A name that does not exist is noted."""
    names = "horovod_1,horovod_2,nobody"
    code, out, err = call("--plot-dir", "", "--run-names", names)
    assert code == 0
    assert "1.712" in out
    assert "deepspeed" not in out
    assert "there is no run nobody; skipped" in err


def test_without_any_run_it_says_what_it_reads(call: Call) -> None:
    """An exit code of its own, and no traceback."""
    code, out, err = call()
    assert (code, out) == (2, "")
    assert "scalability-metrics: there is no such file or folder; skipped" in err
    assert "expected files of runs with steps or epochs" in err


def test_without_matplotlib_there_are_tables_and_a_note(
    call: Call, metrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plots are an extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = call()
    assert code == 0
    assert "6.225" in out
    assert "pip install 'otel-straggler[plots]'" in err


@pytest.mark.parametrize("suffix", [".exe", "../up.png", "png"])
def test_a_suffix_that_is_none_is_refused(call: Call, metrics: Path, suffix: str) -> None:
    """Names of files stay in the folder."""
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: it is needed to know the formats"
    )
    code, _, err = call("--plot-file-suffix", suffix)
    assert code == 2
    assert "--plot-file-suffix: got" in err


def test_plots_of_everything_have_the_suffix_that_was_asked_for(
    call: Call, metrics: Path, tmp_path: Path
) -> None:
    """Also those of energy, throughput, operators and the time of the GPU."""
    pytest.importorskip(
        "matplotlib",
        reason="matplotlib is not installed: it is needed to show that plots are written",
    )
    sample = (
        "sample_idx,utilization,power,local_rank,node_idx,num_global_gpus,strategy,probing_interval"
    )
    (metrics / "ddp_4.csv").write_text(f"{sample}\n0,40,360,0,0,4,ddp,1\n")
    (metrics / "ops.csv").write_text(
        "name,self_cuda_time_total,strategy,num_gpus\naten::mm,3,ddp,4\nother,1,ddp,4\n"
    )
    (metrics / "work.csv").write_text(
        "epoch_id,time,name,nodes,samples,tokens\n1,5,ddp,4,100,700\n1,6,ddp,4,100,700\n"
    )
    events = [*step(1, 0, 100), kernel("gemm", 0, 60), kernel("ncclDevKernel_AllReduce", 40, 60)]
    (metrics / "trace.json").write_text(trace_text(events, 0, 4))
    code, out, _ = call("--plot-file-suffix", "_v2.svg")
    assert code == 0
    assert {path.name.removesuffix("_v2.svg") for path in (tmp_path / "plots").iterdir()} == {
        "absolute_epoch_time", "relative_epoch_time_speedup", "efficiency_plot", "step_time_plot",
        "samples_per_second_plot", "tokens_per_second_plot", "utilization_plot", "gpu_energy_plot",
        "computation_vs_other_plot", "computation_vs_communication_plot",
    }  # fmt: skip
    assert "75.00 %" in out  # operators
    assert "33.3%" in out  # of the communication is hidden


def test_progress_is_shown_on_a_terminal_only() -> None:
    """A log file stays readable."""
    terminal, log = io.StringIO(), io.StringIO()
    for file, is_terminal in (terminal, True), (log, False):
        with shown_progress(
            "rank-0.json", Console(file=file, force_terminal=is_terminal)
        ) as report:
            report(0.5)
    assert "reading rank-0.json" in terminal.getvalue()
    assert log.getvalue() == ""
