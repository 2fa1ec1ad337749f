"""The experiment trackers that scalars can go to, told apart by what they can do: none of their
packages is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_straggler.errors import ConfigError, describe

Scalars = Mapping[str, float]
LogScalars = Callable[[Scalars, int | None], None]
"""Takes full names and values, and the training step."""


def logging_to(tracker: Any) -> LogScalars:
    """How scalars are given to a tracker.

    Args:
        tracker: a ``SummaryWriter`` of TensorBoard or tensorboardX, the module ``mlflow`` or a
            logger with its ``log_metrics(metrics, step=)``, a run of W&B, or any function of
            (name, value, step).

    Raises:
        ConfigError: it is none of these.
    """
    for method, adapt in (
        ("add_scalar", _to_summary_writer),
        ("log_metrics", _to_metrics_logger),
        ("log", _to_wandb_run),
    ):
        if callable(getattr(tracker, method, None)):
            return adapt(tracker)
    if callable(tracker):
        return _to_function(tracker)
    raise ConfigError(
        describe(
            where="TrackerScalars(tracker)",
            value=type(tracker).__name__,
            expected="a SummaryWriter, the module mlflow, a W&B run, or a function of "
            "(name, value, step)",
            remedy="Give what your script logs its loss with.",
        )
    )


def _to_summary_writer(writer: Any) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)

    return log


def _to_metrics_logger(logger: Any) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        logger.log_metrics(dict(scalars), step=step)

    return log


def _to_wandb_run(run: Any) -> LogScalars:
    """Without a step they wait for what the script logs next, and come with that."""

    def log(scalars: Scalars, step: int | None) -> None:
        if step is None:
            run.log(dict(scalars), commit=False)
        else:
            run.log(dict(scalars), step=step)

    return log


def _to_function(function: Callable[[str, float, int | None], object]) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        for name, value in scalars.items():
            function(name, value, step)

    return log
