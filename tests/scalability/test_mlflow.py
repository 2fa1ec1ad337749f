"""Runs in stores of MLflow, written by hand as MLflow writes them, and by MLflow itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from otel_straggler.cli import main
from otel_straggler.scalability.inputs import ScalingInputs
from otel_straggler.scalability.runs import GPUS, ScalingRun

EPOCH_S = {
    "deepspeed": (59.01, 31.37, 17.86, 9.48),
    "horovod": (59.77, 34.91, 21.95, 16.75),
    "torch-ddp": (72.92, 48.62, 19.26, 10.30),
}
"""The example of itwinai's documentation."""
AT_MS = 1_790_000_000_000
Read = Callable[[Path], dict[str, ScalingRun]]
Points = dict[str, list[tuple[int, float, int]]]


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def read(notes: list[str]) -> Read:
    def read_all(path: Path) -> dict[str, ScalingRun]:
        inputs = ScalingInputs(notes.append, lambda _: nullcontext(lambda _: None))
        inputs.read([str(path)])
        return {run.name: run for run in inputs.runs()}

    return read_all


def every_second(*values: float) -> list[tuple[int, float, int]]:
    return [(AT_MS + 1_000 * n, value, n) for n, value in enumerate(values)]


class Store:
    """Writes runs as MLflow's file store does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "817063148582677998"
        self.folder.mkdir(parents=True)
        (self.folder / "meta.yaml").write_text("experiment_id: '8170'\nname: unnamed-experiment\n")

    def run(
        self, run_id: str, name: str, parent: str = "", stage: str = "active",
        metrics: Points | None = None, **params: object,
    ) -> Path:  # fmt: skip
        run = self.folder / run_id
        for part in ("metrics", "params", "tags", "artifacts"):
            (run / part).mkdir(parents=True)
        meta = f"lifecycle_stage: {stage}\nrun_id: {run_id}\nrun_name: {name}\nstatus: 3\n"
        (run / "meta.yaml").write_text(meta)
        (run / "tags" / "mlflow.runName").write_text(name)
        if parent:
            (run / "tags" / "mlflow.parentRunId").write_text(parent)
        for key, value in params.items():
            (run / "params" / key).write_text(str(value))
        for key, points in (metrics or {}).items():
            lines = (f"{at_ms} {value} {step}\n" for at_ms, value, step in points)
            (run / "metrics" / key).write_text("".join(lines))
        return run


def write_trainings(store: Store) -> None:
    """Itwinai's example: a run for each training, a run in it for each worker."""
    for strategy, times in EPOCH_S.items():
        for size, epoch_s in zip((1, 2, 4, 8), times, strict=True):
            training = f"{strategy}{size}"
            store.run(training, f"{strategy} on {size}")
            for worker in range(size):
                metrics = {
                    "gpu_power_W": every_second(360.0 / size, 360.0 / size),
                    "gpu_utilization_percent": every_second(30.0, 50.0),
                }
                if worker == 0:
                    metrics["epoch_time_s"] = every_second(epoch_s - 1.0, epoch_s + 1.0)
                store.run(
                    f"{training}w{worker}", f"worker_{worker}", training, metrics=metrics,
                    strategy=strategy, global_world_size=size, probing_interval=1,
                )  # fmt: skip


def test_a_store_gives_the_speedups_of_itwinais_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where its logger writes by default; utilization and energy of all workers, too."""
    write_trainings(Store(tmp_path / "mllogs" / "mlflow"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    code = main(["scalability", "--plot-dir", ""])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    for speedup in (
        "1.881",
        "3.304",
        "6.225",
        "1.712",
        "2.723",
        "3.568",
        "1.500",
        "3.786",
        "7.080",
    ):
        assert speedup in out
    assert out.count("0.200 Wh") == out.count("40.0 %") == 12
    assert "at 16 GPUs the epoch time would be 6.08 s (95 %: 3.81 s to 8.35 s)" in out


def test_run_names_are_those_of_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With spaces in them; a name that does not exist gets those that do."""
    write_trainings(Store(tmp_path / "mllogs" / "mlflow"))
    monkeypatch.chdir(tmp_path)
    code = main(["scalability", "--plot-dir", "", "--run-names", "horovod on 1, horovod on 2,x"])
    out, err = capsys.readouterr()
    assert code == 0
    assert "1.712" in out
    assert "deepspeed" not in out
    assert "there is no run x; there are: deepspeed on 1, " in err


def test_operators_of_a_worker_belong_to_its_training(tmp_path: Path, read: Read) -> None:
    """They are an artifact of its run."""
    store = Store(tmp_path)
    store.run("t", "ddp", metrics={"epoch_time_s": every_second(3.0)}, global_world_size=2,
              strategy="torch-ddp")  # fmt: skip
    run = store.run("w", "worker_0", "t", metrics={"gpu_power_W": every_second(100.0, 100.0)},
                    global_world_size=2, strategy="torch-ddp")  # fmt: skip
    folder = run / "artifacts" / "torch_profiling_averages"
    folder.mkdir()
    (folder / "torch_profiling_averages.csv").write_text(
        "name,self_cuda_time_total,strategy,num_gpus\naten::mm,3,torch-ddp,2\nother,1,torch-ddp,2\n"
    )
    runs = read(tmp_path)
    assert set(runs) == {"ddp"}
    assert (runs["ddp"].computation, runs["ddp"].epochs_s) == (0.75, (3.0,))


def test_trials_of_ray_are_repeats(tmp_path: Path, read: Read) -> None:
    """Workers are one level deeper; energy comes from times where no interval is known."""
    store = Store(tmp_path)
    store.run("tune", "tune")
    for trial, epoch_s in (("a", 10.0), ("b", 14.0)):
        store.run(trial, f"trial_{trial}", "tune")
        store.run(
            f"w{trial}", "worker_0", trial, global_world_size=4, strategy="ddp",
            metrics={"epoch_time_s": every_second(epoch_s),
                     "gpu_power_W": every_second(360.0, 360.0, 360.0)},
        )  # fmt: skip
    runs = read(tmp_path)
    assert {name: run.epochs_s for name, run in runs.items()} == {
        "tune/trial_a": (10.0,), "tune/trial_b": (14.0,),
    }  # fmt: skip
    assert {run.key for run in runs.values()} == {("ddp", GPUS, 4)}
    assert runs["tune/trial_a"].energy_wh == pytest.approx(0.2)


def test_an_epoch_that_is_logged_again_counts_once_and_deleted_runs_never(
    tmp_path: Path, read: Read, notes: list[str]
) -> None:
    """A training that resumed; lines of which nothing can be read are noted."""
    store = Store(tmp_path)
    points = [(AT_MS, 5.0, 0), (AT_MS, 6.0, 1), (AT_MS + 1, 8.0, 1)]
    run = store.run("a", "ddp_2", metrics={"epoch_time_s": points}, global_world_size=2)
    with (run / "metrics" / "epoch_time_s").open("a") as file:
        file.write("nonsense\n12\n")
    store.run("b", "old", stage="deleted", metrics={"epoch_time_s": points}, global_world_size=2)
    store.run("c", "sizeless", metrics={"epoch_time_s": points})
    runs = read(tmp_path)
    assert set(runs) == {"ddp_2"}
    assert (runs["ddp_2"].epochs_s, runs["ddp_2"].strategy) == ((5.0, 8.0), "ddp")
    assert any("2 lines without a value are left out" in note for note in notes)
    assert any("sizeless: neither global_world_size nor samples" in note for note in notes)


def test_runs_of_the_same_name_are_numbered(tmp_path: Path, read: Read) -> None:
    """As MLflow allows."""
    store = Store(tmp_path)
    for run_id in ("a", "b"):
        store.run(run_id, "ddp", metrics={"epoch_time_s": every_second(5.0)}, global_world_size=2)
    assert set(read(tmp_path)) == {"ddp", "ddp #2"}


def test_an_sqlite_store_gives_the_same(tmp_path: Path, read: Read) -> None:
    """The default of newer versions of MLflow."""
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            "CREATE TABLE experiments (experiment_id INTEGER, name TEXT);"
            "CREATE TABLE runs (run_uuid TEXT, name TEXT, lifecycle_stage TEXT, start_time);"
            "CREATE TABLE metrics (run_uuid TEXT, key TEXT, value REAL, timestamp INTEGER,"
            " step INTEGER, is_nan BOOLEAN);"
            "CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT);"
            "CREATE TABLE tags (run_uuid TEXT, key TEXT, value TEXT);"
        )
        db.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, 0)",
            [("t", "ddp", "active"), ("w", "worker_0", "active"), ("x", "old", "deleted")],
        )
        db.execute("INSERT INTO tags VALUES ('w', 'mlflow.parentRunId', 't')")
        db.execute("INSERT INTO params VALUES ('w', 'global_world_size', '2')")
        for step, value in enumerate((3.0, 5.0)):
            row = (value, AT_MS + step, step)
            db.execute("INSERT INTO metrics VALUES ('w', 'epoch_time_s', ?, ?, ?, 0)", row)
            db.execute("INSERT INTO metrics VALUES ('x', 'epoch_time_s', ?, ?, ?, 0)", row)
    runs = read(path)
    assert {name: (run.size, run.epochs_s) for name, run in runs.items()} == {
        "ddp": (2, (3.0, 5.0))
    }


def test_what_mlflow_itself_writes_is_read(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file store."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow to show that its files are read")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.create_experiment("unnamed-experiment")
    training = client.create_run(experiment, run_name="my training").info.run_id
    tags = {"mlflow.parentRunId": training}
    worker = client.create_run(experiment, run_name="worker_0", tags=tags).info.run_id
    client.log_param(worker, "strategy", "torch-ddp")
    client.log_param(worker, "global_world_size", 4)
    for step, epoch_s in enumerate((3.0, 4.0)):
        client.log_metric(worker, "epoch_time_s", epoch_s, step=step)
    runs = read(tmp_path)
    assert {name: (run.key, run.epochs_s) for name, run in runs.items()} == {
        "my training": (("torch-ddp", GPUS, 4), (3.0, 4.0))
    }
