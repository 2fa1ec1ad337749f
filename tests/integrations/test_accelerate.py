"""Loops whose parts ``Accelerator.prepare`` has prepared."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.errors import UsageError

from .recorded import Recorded

pytestmark = [
    pytest.mark.skipif(
        not importlib.util.find_spec("accelerate"),
        reason="accelerate is not installed: it would show that the steps of its loops are timed",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def parts() -> tuple[Any, Any, Any]:
    import torch

    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, torch.utils.data.DataLoader(torch.rand(32, 8), batch_size=4)


def train(accelerator: Any, model: Any, optimizer: Any, loader: Any) -> None:
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("is_first", [True, False], ids=["before_prepare", "after_prepare"])
def test_each_step_has_its_four_sections(is_first: bool) -> None:
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True)
    prepared = None if is_first else accelerator.prepare(*parts())
    with Recorded() as recorded, watch(accelerator):
        train(accelerator, *(prepared or accelerator.prepare(*parts())))
    assert recorded.names(2) == ["data_loading", "forward", "backward", "optimizer", "step"]
    assert {run.step for run in recorded.runs if run.name == "step"} >= set(range(7))


def test_accumulated_batches_are_one_step() -> None:
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    with Recorded() as recorded, watch(accelerator):
        train(accelerator, *accelerator.prepare(*parts()))
    assert recorded.names(1).count("backward") == 4
    assert recorded.names(1).count("optimizer") == 1
    assert {run.step for run in recorded.runs if run.name == "optimizer"} == {0, 1}


def test_one_thing_may_be_prepared_alone() -> None:
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True)
    with Recorded() as recorded, watch(accelerator):
        train(accelerator, *(accelerator.prepare(part) for part in parts()))
    assert recorded.names(1) == ["data_loading", "forward", "backward", "optimizer", "step"]


def test_closing_leaves_the_accelerator_as_it_was() -> None:
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True)
    watching = watch(accelerator)
    model, _, _ = accelerator.prepare(*parts())
    assert model._forward_pre_hooks
    watching.close()
    watching.close()
    assert not model._forward_pre_hooks
    assert "prepare" not in vars(accelerator)
    assert not WATCHING._watched


def test_what_prepares_nothing_is_refused() -> None:
    from otel_straggler.integrations.accelerate import watch

    with pytest.raises(UsageError, match="prepare"):
        watch(object())


def test_nothing_is_watched_where_one_part_cannot_be() -> None:
    from otel_straggler.integrations.accelerate import watch

    model, *_ = parts()
    with pytest.raises(UsageError):
        watch(SimpleNamespace(_models=[model]))  # it prepares nothing
    assert not model._forward_pre_hooks
    assert not WATCHING._watched


def test_preparation_and_saved_and_loaded_states_are_phases(tmp_path: Path) -> None:
    """They are as before once the watch is closed."""
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True)
    with Recorded() as recorded, watch(accelerator):
        accelerator.prepare(*parts())
        accelerator.save_state(tmp_path / "state")
        accelerator.load_state(tmp_path / "state")
    phases = [(run.name, run.kind, run.step) for run in recorded.runs]
    assert phases == [
        ("preparation", "other", None),
        ("checkpoint", "checkpoint", None),
        ("checkpoint_load", "other", None),
    ]
    assert not {"prepare", "save_state", "load_state"} & vars(accelerator).keys()
