"""DeepSpeed: the steps of a loop that calls its engine."""

from __future__ import annotations

from typing import Any

from otel_straggler.errors import UsageError
from otel_straggler.integrations.training_watch import TrainingWatch, is_engine

__all__ = ["watch"]


def watch(engine: Any, dataloader: Any = None) -> TrainingWatch:
    """Record the steps of a loop, with data loading, forward, backward and optimizer as sections.

        engine, _, loader, _ = deepspeed.initialize(...)
        otel_straggler.configure()
        watch(engine, loader)

    ``engine.backward()`` is ``backward``, with the averaging of gradients and the time
    waited in it; ``engine.step()`` is ``optimizer``. A step ends where the engine updates the
    weights. Nothing is recorded before ``configure()``.

    Args:
        engine: what ``deepspeed.initialize`` returns first.
        dataloader: what the loop iterates; without it, a step begins with forward.

    Returns:
        A handle that undoes it.

    Raises:
        UsageError: one of the two cannot be watched; nothing is watched then.
    """
    if not is_engine(engine):
        raise UsageError.of(
            "deepspeed.watch(engine)",
            type(engine).__name__,
            "a DeepSpeedEngine",
            "Pass what deepspeed.initialize() returns first.",
        )
    watching = TrainingWatch()
    try:
        watching.add(engine)
        if dataloader is not None:
            watching.add_loader(dataloader)
    except UsageError:
        watching.close()
        raise
    return watching
