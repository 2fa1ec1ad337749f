"""``CheckpointCallback``: Lightning's fits saved and resumed by ``checkpoint.Manager``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_straggler.integrations.lightning.step_timing import Callback
from otel_straggler.integrations.trainer_saves import JsonState, TrainerSaves


class CheckpointCallback(Callback):
    """Saves a fit while it goes on, resumes it, and saves before SIGTERM ends it.

        trainer = Trainer(..., callbacks=[CheckpointCallback("checkpoints", every_steps=100)])

    Module, optimizers, schedulers, generators of random numbers, and the progress of the loops are
    saved and restored; the data of the epoch that was interrupted begin again, unless the loader is
    among ``parts``. Lightning's own ``ModelCheckpoint`` may save next to it.

    Args:
        folder: for these checkpoints alone.
        parts: further state by name; each has ``state_dict()`` and ``load_state_dict()``.
        options: further arguments of :class:`~otel_straggler.checkpoint.Manager`, such as
            ``every_steps``, ``every_s``, ``interval="optimal"``, and ``keep``.

    Raises:
        ConfigError, InputError, UsageError, UnavailableError: when the fit begins, as ``Manager``
            raises them.
    """

    def __init__(
        self, folder: str | Path, *, parts: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self._saves = TrainerSaves(folder, options)
        self._parts = parts or {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._saves.begin(lambda: self._state_of(trainer), trainer.global_step)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._saves.end_step(trainer.global_step):
            trainer.should_stop = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._saves.close(is_clean=False)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._saves.close(is_clean=True)

    def _state_of(self, trainer: Any) -> dict[str, Any]:
        from otel_straggler.checkpoint import training_state

        loop = trainer.fit_loop
        schedulers = {
            f"scheduler {number}": config.scheduler
            for number, config in enumerate(trainer.lr_scheduler_configs)
        }
        progress = JsonState(loop.state_dict, loop.load_state_dict)
        return training_state(
            trainer.strategy.model, trainer.optimizers, progress=progress, **schedulers,
            **self._parts,
        )  # fmt: skip
