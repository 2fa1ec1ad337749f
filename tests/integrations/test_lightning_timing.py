"""Steps, sections and phases of Lightning's ``Trainer``, in both of its distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_straggler.client import process

from .lightning_runs import DISTRIBUTIONS, loader, model, needs_lightning, trainer
from .recorded import Recorded

pytestmark = [
    needs_lightning("that their steps are timed"),
    pytest.mark.filterwarnings("ignore"),  # Lightning's own, about small data
]
SECTIONS = ["data_loading", "forward", "backward", "optimizer", "step"]


def timing() -> Any:
    from otel_straggler.integrations.lightning import StepTimingCallback

    return StepTimingCallback(endpoint="http://127.0.0.1:9", exit_deadline_s=0.1)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_each_step_has_its_four_sections_in_order(distribution: str, tmp_path: Path) -> None:
    """Data is loaded inside of the step that works on it; no section is around another."""
    with Recorded() as recorded:
        trainer(distribution, tmp_path, [timing()], max_steps=3).fit(model(distribution), loader())
    for step in range(3):
        assert recorded.names(step) == SECTIONS
    assert {run.kind for run in recorded.runs if run.name == "data_loading"} == {"data"}
    in_first = {run.name: run.duration_ns for run in recorded.runs if run.step == 0}
    assert sum(in_first.values()) <= 2 * in_first["step"]


def test_data_is_seen_where_the_trainer_has_no_hooks_around_a_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are private: without them its profiler says when data is fetched."""
    from otel_straggler.integrations.lightning import step_timing

    monkeypatch.setattr(step_timing, "_AROUND_FETCH", ("no_such_hook",))
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        fit = trainer(distribution, tmp_path, [timing()], max_steps=2)
        fit.fit(model(distribution), loader())
    assert recorded.names(1) == SECTIONS
    assert not {"start", "stop"} & set(vars(fit.profiler))


def test_the_profiler_of_the_trainer_is_left_alone(tmp_path: Path) -> None:
    """It is called some twenty times a step."""
    distribution = DISTRIBUTIONS[0]
    replaced: list[str] = []

    class Looking(type(model(distribution))):  # type: ignore[misc]
        def on_train_batch_start(self, *_: Any) -> None:
            replaced.extend({"start", "stop"} & set(vars(fit.profiler)))

    with Recorded():
        fit = trainer(distribution, tmp_path, [timing()], max_steps=2)
        fit.fit(Looking(), loader())
    assert replaced == []
    assert not {"_on_before_fetch", "_on_after_fetch"} & set(vars(fit.fit_loop.epoch_loop))


def test_manual_optimization_does_not_count_backward_as_forward(tmp_path: Path) -> None:
    """Lightning runs all of it inside of ``training_step``: forward goes on after each."""
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        fit = trainer(distribution, tmp_path, [timing()], max_steps=2)
        fit.fit(model(distribution, is_manual=True), loader())
    assert recorded.names(1) == [
        "data_loading",
        *("forward", "backward", "forward", "optimizer", "forward"),
        "step",
    ]


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    """A step ends where the optimizer has stepped."""
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        fit = trainer(distribution, tmp_path, [timing()], max_epochs=1, accumulate_grad_batches=4)
        fit.fit(model(distribution), loader())
    assert [run.step for run in recorded.runs if run.name == "step"] == [0, 1]
    assert recorded.names(1).count("forward") == 4
    assert recorded.names(1).count("optimizer") == 1


def test_evaluation_and_checkpoints_are_phases_outside_of_steps(tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        fit = trainer(distribution, tmp_path, [timing()], max_epochs=2, enable_checkpointing=True)
        fit.fit(model(distribution), loader(), loader())
    phases = [run for run in recorded.runs if run.name in ("eval", "checkpoint")]
    assert [run.name for run in phases] == ["eval", "checkpoint", "eval", "checkpoint"]
    assert all(run.step is None for run in phases)
    assert recorded.names(8) == SECTIONS


def test_steps_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[0]
    first = trainer(distribution, tmp_path, max_steps=3)
    first.fit(model(distribution), loader())
    path = tmp_path / "three.ckpt"
    first.save_checkpoint(path)
    with Recorded() as recorded:
        second = trainer(distribution, tmp_path, [timing()], max_steps=5)
        second.fit(model(distribution), loader(), ckpt_path=path)
    assert [run.step for run in recorded.runs if run.name == "step"] == [3, 4]
    names = [run.name for run in recorded.runs]
    assert names.index("checkpoint_load") < names.index("preparation") < names.index("step")
    assert names.count("checkpoint_load") == names.count("preparation") == 1


def test_several_callbacks_of_ours_mark_each_step_once(tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        fit = trainer(distribution, tmp_path, [timing(), timing()], max_steps=2)
        fit.fit(model(distribution), loader())
    assert recorded.names(0) == SECTIONS


def test_what_was_replaced_is_back_after_a_fit_and_after_a_failed_one(tmp_path: Path) -> None:
    """The trainer, its strategy and its loops have no attribute of ours; the session, which the
    callback began, is over."""
    distribution = DISTRIBUTIONS[0]

    class Failing(type(model(distribution))):  # type: ignore[misc]
        def on_train_batch_end(self, *_: Any) -> None:
            raise ArithmeticError

    for made, error in ((model(distribution), None), (Failing(), ArithmeticError)):
        fit = trainer(distribution, tmp_path, [timing()], max_steps=2)
        if error is None:
            fit.fit(made, loader())
        else:
            with pytest.raises(error):
                fit.fit(made, loader())
        assert "training_step" not in vars(fit.strategy)
        assert not {"_on_before_fetch", "_on_after_fetch"} & set(vars(fit.fit_loop.epoch_loop))
        assert "save_checkpoint" not in vars(fit)
        assert process.current() is None


def test_a_session_of_the_script_outlives_the_fit(tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[0]
    process.configure(endpoint="http://127.0.0.1:9", exit_deadline_s=0.1, run_id="mine")
    trainer(distribution, tmp_path, [timing()], max_steps=1).fit(model(distribution), loader())
    settings = process.current()
    assert settings is not None
    assert settings.run_id == "mine"


def test_validation_alone_is_not_timed(tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[0]
    with Recorded() as recorded:
        trainer(distribution, tmp_path, [timing()]).validate(model(distribution), loader())
    assert recorded.runs == []
