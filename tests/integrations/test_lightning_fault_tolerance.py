"""``FaultToleranceCallback``: its flag, timeouts and watch, by the facts of NVRx's tests."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from .lightning_runs import DISTRIBUTIONS, LOGGER, loader, model, needs_lightning, trainer

pytestmark = [
    needs_lightning("when timeouts are learned"),
    pytest.mark.filterwarnings("ignore"),
]
LIGHTNING = DISTRIBUTIONS[0]


@pytest.fixture(autouse=True)
def _settings(_own_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_STRAGGLER_EXIT_DEADLINE_S", "0.1")
    monkeypatch.setenv("FAULT_TOL_FINISHED_FLAG_FILE", str(tmp_path / "finished.flag"))


def callback(folder: Path | None, **changed: Any) -> Any:
    from otel_straggler.integrations.lightning import FaultToleranceCallback

    given = {"autoresume": True, "calculate_timeouts": True, "exp_dir": folder, **changed}
    return FaultToleranceCallback(**given, logger_name=LOGGER)


def fit(folder: Path, *more: Any, distribution: str = LIGHTNING, **options: Any) -> Any:
    """Go on from the last checkpoint, as a job of several does."""
    import importlib

    checkpoints = importlib.import_module(distribution).callbacks.ModelCheckpoint(
        dirpath=folder, save_last=True, every_n_train_steps=4
    )
    made = callback(folder)
    run = trainer(
        distribution, folder, [made, checkpoints, *more], enable_checkpointing=True, **options
    )
    run.fit(model(distribution), loader(), loader(), ckpt_path="last")
    return made


class Stop:
    """A callback that raises after so many batches."""

    def __new__(cls, after: int, error: BaseException) -> Any:
        from lightning.pytorch.callbacks import Callback

        class Stopping(Callback):
            batches = 0

            def on_train_batch_end(self, *_: Any) -> None:
                self.batches += 1
                if self.batches >= after:
                    raise error

        return Stopping()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_flag_is_there_at_the_limit_of_steps_and_again_after_an_empty_fit(
    distribution: str, tmp_path: Path
) -> None:
    flag = tmp_path / "finished.flag"
    fit(tmp_path, distribution=distribution, max_steps=8)
    assert flag.exists()
    flag.unlink()
    fit(tmp_path, distribution=distribution, max_steps=8)
    assert flag.exists()


def test_the_flag_is_there_when_all_epochs_are_over(tmp_path: Path) -> None:
    fit(tmp_path, max_epochs=2)
    assert (tmp_path / "finished.flag").exists()


def test_a_time_limit_is_no_end_until_a_fit_has_nothing_left_to_do(tmp_path: Path) -> None:
    """The trainer stops by time after some batches; the next fit stops at its first."""
    from lightning.pytorch.callbacks import Callback

    class Limit(Callback):
        def __init__(self, batches: int) -> None:
            self.left = batches

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            self.left -= 1
            trainer.should_stop = self.left <= 0

    fit(tmp_path, Limit(3), max_epochs=100)
    assert not (tmp_path / "finished.flag").exists()
    fit(tmp_path, Limit(1), max_epochs=100)
    assert (tmp_path / "finished.flag").exists()


def test_without_autoresume_there_is_no_flag(tmp_path: Path) -> None:
    made = callback(tmp_path, autoresume=False)
    trainer(LIGHTNING, tmp_path, [made], max_steps=2).fit(model(LIGHTNING), loader())
    assert not (tmp_path / "finished.flag").exists()


def test_autoresume_needs_the_path_of_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAULT_TOL_FINISHED_FLAG_FILE")
    with pytest.raises(RuntimeError, match="'FAULT_TOL_FINISHED_FLAG_FILE' env variable is not"):
        trainer(LIGHTNING, tmp_path, [callback(tmp_path)], max_steps=2).fit(
            model(LIGHTNING), loader()
        )


def test_the_folder_for_timeouts_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Fault tolerance save directory does not exist"):
        trainer(LIGHTNING, tmp_path, [callback(tmp_path / "none")], max_steps=2).fit(
            model(LIGHTNING), loader()
        )


def test_without_a_folder_the_trainers_is_used(tmp_path: Path) -> None:
    made = callback(None)
    trainer(LIGHTNING, tmp_path, [made], max_steps=2).fit(model(LIGHTNING), loader())
    assert made.timeouts_file_path == tmp_path / "ft_state" / "_ft_state.json"
    assert made.timeouts_file_path.parent.is_dir()


def test_timeouts_are_learned_by_a_fit_that_has_loaded_and_saved_a_checkpoint(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    """Not by the first; the third loads them, and averages its own with them."""
    path = tmp_path / "_ft_state.json"
    fit(tmp_path, max_steps=8)
    assert not path.exists()
    fit(tmp_path, max_steps=16)
    assert "Updated FT timeouts. New values: HeartbeatTimeouts(initial=" in logged.text
    learned = json.loads(path.read_text())["current_timeouts"]["heartbeat"]
    assert learned["were_calculated"] is True
    assert learned["initial"] > 0
    assert learned["subsequent"] > 0
    path.write_text(
        '{"current_timeouts": {"heartbeat": '
        '{"initial": 2000.0, "subsequent": 1000.0, "were_calculated": true}}}'
    )
    fit(tmp_path, max_steps=24)
    assert (
        "[FaultToleranceCallback@rank0] Fault tolerance timeouts loaded: "
        "HeartbeatTimeouts(initial=2000.00, subsequent=1000.00, were_calculated=True)"
    ) in logged.text
    averaged = json.loads(path.read_text())["current_timeouts"]["heartbeat"]
    assert 1000 < averaged["initial"] < 2000
    assert 500 < averaged["subsequent"] < 1000


def test_timeouts_are_learned_at_a_clean_exit_but_not_at_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "_ft_state.json"
    fit(tmp_path, max_steps=8)
    for error in (ArithmeticError(), SystemExit(1)):
        with pytest.raises(type(error)):
            fit(tmp_path, Stop(5, error), max_steps=100)
        assert not path.exists()
    with pytest.raises(SystemExit):
        fit(tmp_path, Stop(5, SystemExit(0)), max_steps=100)
    assert path.exists()


def test_the_callback_does_nothing_outside_of_a_fit(tmp_path: Path) -> None:
    made = callback(tmp_path)
    run = trainer(LIGHTNING, tmp_path, [made])
    run.validate(model(LIGHTNING), loader())
    assert not made.is_initialized
    assert not (tmp_path / "finished.flag").exists()


def test_a_file_that_holds_no_timeouts_is_named(tmp_path: Path) -> None:
    (tmp_path / "_ft_state.json").write_text("[]")
    with pytest.raises(ValueError, match=r"_ft_state\.json holds no heartbeat timeouts"):
        fit(tmp_path, max_steps=2)


def test_without_calculated_timeouts_the_collector_learns_them(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    made = callback(tmp_path, calculate_timeouts=False)
    trainer(LIGHTNING, tmp_path, [made], max_steps=1).fit(model(LIGHTNING), loader())
    assert "Timeouts: those that the collector learns." in logged.text


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_rank_that_exceeds_its_timeout_is_logged_once_with_its_stack(
    logged: pytest.LogCaptureFixture,
) -> None:
    """Until its first heartbeat the longer timeout holds; when it goes on, that is logged, too."""
    from otel_straggler.integrations.lightning.heartbeat_timeouts import (
        HeartbeatTimeouts,
        HeartbeatWatch,
    )

    clock = Clock()
    watch = HeartbeatWatch(3, HeartbeatTimeouts(60.0, 10.0, True), logging.getLogger(LOGGER), clock)

    def passed(seconds: float) -> list[str]:
        logged.clear()
        clock.now_s += seconds
        watch.tick()
        return [record.getMessage() for record in logged.records]

    assert passed(59) == []
    watch.beat()
    assert passed(10) == []
    message = passed(1)[0]
    assert message.startswith("Rank 3 has made no progress for 11 s, its timeout is 10 s.")
    assert "test_lightning_fault_tolerance.py" in message
    assert passed(100) == []
    watch.beat()
    assert "Rank 3 goes on after 111 s." in logged.text
    assert (watch.longest_initial_s, watch.longest_s) == (59.0, 111.0)
    assert len(passed(11)) == 1


def test_without_timeouts_nobody_is_stuck(logged: pytest.LogCaptureFixture) -> None:
    from otel_straggler.integrations.lightning.heartbeat_timeouts import (
        HeartbeatTimeouts,
        HeartbeatWatch,
    )

    clock = Clock()
    watch = HeartbeatWatch(0, HeartbeatTimeouts(), logging.getLogger(LOGGER), clock)
    clock.now_s += 1e6
    watch.tick()
    assert logged.text == ""


def test_a_simulated_fault_hits_the_rank_that_rank_0_draws(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from otel_straggler.inject import simulated_faults
    from otel_straggler.integrations.lightning import SimulatedFaultParams

    sent: list[int] = []
    started: list[Any] = []
    reported: list[Any] = []

    class Timer:
        def __init__(self, delay_s: float, function: Any, arguments: Any) -> None:
            started.append((delay_s, function, arguments))

        def start(self) -> None: ...

    monkeypatch.setattr(simulated_faults.threading, "Timer", Timer)
    monkeypatch.setattr(simulated_faults.os, "kill", lambda _, number: sent.append(number))
    fault = SimulatedFaultParams("rank_hung", base_delay=20.0)
    for rank in range(4):
        simulated_faults.start_fault(
            fault, rank=rank, world_size=4, broadcast=lambda _: 2, report=reported.append
        )
    ((delay_s, function, arguments),) = started
    assert (delay_s, arguments[:2]) == (20.0, ("rank_hung", 2))
    function(*arguments)
    assert sent == [signal.SIGSTOP]
    assert [str(each.fault) for each in reported] == ["rank_hung@rank2:0s"]
    assert "Simulating fault: rank_hung; rank to fail: 2" in capsys.readouterr().out


def test_a_simulated_fault_is_given_as_an_object_or_a_mapping(tmp_path: Path) -> None:
    from otel_straggler.integrations.lightning import SimulatedFaultParams

    expected = SimulatedFaultParams("rank_killed", 5.0, rank_to_fail=1)
    mapping = {"fault_type": "rank_killed", "base_delay": 5.0, "rank_to_fail": 1}
    for given in (expected, mapping):
        assert callback(tmp_path, simulated_fault_params=given).simulated_fault_params == expected
    for wrong in (5, {"fault_type": "rank_killed"}, {"fault_type": "rank_late", "base_delay": 1}):
        with pytest.raises(ValueError, match="expected"):
            callback(tmp_path, simulated_fault_params=wrong)
