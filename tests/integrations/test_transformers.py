"""The callback for the ``Trainer`` of Transformers."""

from __future__ import annotations

import gc
import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client import process
from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.testing import CapturedRequests

from .recorded import Recorded

pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
        reason="transformers or accelerate is not installed: "
        "it would show that a Trainer's steps are timed",
    ),
    pytest.mark.filterwarnings("ignore"),
]
BATCH = ["forward", "backward"]


def train(folder: Path, *, resume: bool = False, **options: Any) -> Any:
    """A Trainer that has trained."""
    trainer = trainer_of(folder, **options)
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def trainer_of(
    folder: Path,
    *,
    fails_at: int | None = None,
    endpoint: str = "http://127.0.0.1:9",
    exit_deadline_s: float = 0.1,
    **options: Any,
) -> Any:
    """A Trainer of a model of one layer, on 40 samples in batches of 4. Its forward raises after
    ``fails_at`` batches."""
    import torch
    from transformers import Trainer, TrainingArguments

    from otel_straggler.integrations.transformers import StepTimingCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)
            self.batches = 0

        def forward(self, x: Any, labels: Any = None) -> Any:
            if self.batches == fails_at:
                raise ZeroDivisionError
            self.batches += 1
            logits = self.layer(x)
            return {"loss": logits.square().mean(), "logits": logits}

    class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 40

        def __getitem__(self, item: int) -> Any:
            return {"x": torch.rand(8), "labels": torch.tensor(1)}

    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=4, **{"max_steps": 3, **quiet, **options}
    )
    callback = StepTimingCallback(endpoint=endpoint, exit_deadline_s=exit_deadline_s)
    return Trainer(
        Model(), arguments, train_dataset=Items(), eval_dataset=Items(), callbacks=[callback]
    )


def test_each_step_has_its_four_sections(tmp_path: Path) -> None:
    """They lie within the training step, where callbacks alone see one piece."""
    with Recorded() as recorded:
        train(tmp_path)
    assert recorded.names(1) == ["data_loading", *BATCH, "optimizer", "step"]
    assert {run.kind for run in recorded.runs if run.name == "data_loading"} == {"data"}


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    with Recorded() as recorded:
        train(tmp_path, gradient_accumulation_steps=2)
    assert recorded.names(1) == ["data_loading"] * 2 + [*BATCH, *BATCH, "optimizer", "step"]


def test_evaluation_and_checkpoints_are_phases_outside_of_steps(tmp_path: Path) -> None:
    with Recorded() as recorded:
        train(tmp_path, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)
    phases = [run for run in recorded.runs if run.name in ("eval", "checkpoint")]
    names = [run.name for run in phases]
    assert names[:2] == ["eval", "checkpoint"]
    assert names[-1] == "checkpoint"  # at the end, where only newer Trainers evaluate
    assert all(run.step is None for run in phases)
    assert recorded.names(2) == ["data_loading", *BATCH, "optimizer", "step"]


def test_a_checkpoint_at_the_end_of_an_epoch_is_a_phase(tmp_path: Path) -> None:
    with Recorded() as recorded:
        train(tmp_path, max_steps=-1, num_train_epochs=2, save_strategy="epoch")
    phases = [run for run in recorded.runs if run.name == "checkpoint"]
    assert len(phases) == 2
    assert all(run.step is None for run in phases)


def test_data_is_seen_after_a_resume_too(tmp_path: Path) -> None:
    """The trainer then makes another loader, which no callback is given."""
    train(tmp_path, save_strategy="steps", save_steps=3)
    with Recorded() as recorded:
        train(tmp_path, resume=True, max_steps=6)
    steps = [run.step for run in recorded.runs if run.name == "step"]
    assert len(steps) == 3
    assert all("data_loading" in recorded.names(step) for step in steps[1:])
    names = [run.name for run in recorded.runs]
    assert names.index("checkpoint_load") < names.index("preparation") < names.index("step")
    assert names.count("preparation") == 1


@pytest.mark.parametrize("fails_at", [None, 1])
def test_nothing_is_left_after_a_training(tmp_path: Path, fails_at: int | None) -> None:
    """Neither hooks on the model, nor what is replaced in torch, nor the session; also where an
    exception ends it, which no callback hears of. The callback gone, the Trainer is as it was."""
    import torch
    from transformers import Trainer

    gc.collect()  # callbacks of other tests
    before, of_trainer = torch.autograd.backward, Trainer.__dict__["train"]
    trainer = None
    with pytest.raises(ZeroDivisionError) if fails_at else nullcontext():
        trainer = made = trainer_of(tmp_path, fails_at=fails_at)
        made.train()
    assert not trainer.model._forward_pre_hooks
    assert torch.autograd.backward is before
    assert not WATCHING._watched
    assert process.current() is None
    assert Trainer.__dict__["train"] is not of_trainer
    del trainer, made
    gc.collect()
    assert Trainer.__dict__["train"] is of_trainer


def test_a_training_that_an_exception_ends_has_failed(tmp_path: Path) -> None:
    with CapturedRequests() as sink:
        with pytest.raises(ZeroDivisionError):
            trainer_of(tmp_path, fails_at=1, endpoint=sink.url, exit_deadline_s=5.0).train()
        [finished] = sink.points(semconv.RANK_FINISHED)
    assert finished.attributes["outcome"] == "failed"


def test_a_session_of_the_script_outlives_the_training(tmp_path: Path) -> None:
    process.configure(endpoint="http://127.0.0.1:9", exit_deadline_s=0.1, run_id="mine")
    train(tmp_path)
    settings = process.current()
    assert settings is not None
    assert settings.run_id == "mine"
