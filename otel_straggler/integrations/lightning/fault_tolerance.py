"""``FaultToleranceCallback``: signs of progress of a fit, with NVRx's parameters."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

from otel_straggler.client import process
from otel_straggler.detect.hangs.rank_timeouts import HeartbeatTimeouts
from otel_straggler.inject.simulated_faults import (
    SimulatedFaultParams,
    parsed_fault,
    start_fault,
)
from otel_straggler.integrations.lightning.heartbeat_timeouts import (
    HeartbeatWatch,
    calculated_timeouts,
    read_timeouts,
    write_timeouts,
)
from otel_straggler.integrations.lightning.step_timing import TimingCallback
from otel_straggler.integrations.step_sections import begin_session
from otel_straggler.regular_files import create_folder

__all__ = ["FaultToleranceCallback", "SimulatedFaultParams"]

FINISHED_FLAG: Final = "FAULT_TOL_FINISHED_FLAG_FILE"
_MIN_ITERATIONS: Final = 2


class FaultToleranceCallback(TimingCallback):
    """Reports the progress of a fit, so that a rank that is stuck or gone is noticed.

    The collector gets steps, sections and heartbeats, with evaluation and checkpoints as phases,
    which have timeouts of their own. The callback itself watches the intervals between batches, and
    logs an error with the stack of a rank that exceeds its calculated timeout. It starts and ends
    no process.

    Args:
        autoresume: rank 0 creates the file that ``FAULT_TOL_FINISHED_FLAG_FILE`` names when the
            training is complete, so that a script can start the next job or leave it.
        calculate_timeouts: learn timeouts, five times the longest interval on any rank, at the end
            of a fit that has loaded and saved a checkpoint; keep them in ``exp_dir`` for the next.
            If False there are only the collector's, which it learns by itself.
        simulated_fault_params: ``SimulatedFaultParams`` or a mapping of its fields: a rank kills or
            stops itself.
        exp_dir: existing folder that all jobs see; default: ``ft_state`` in the trainer's log
            folder, which is created.
        logger_name: of the ``logging`` logger.

    Raises:
        ValueError: ``simulated_fault_params`` is neither; in ``setup``: ``exp_dir`` does not exist,
            or holds something else than timeouts.
        RuntimeError: in ``setup``: ``autoresume`` without ``FAULT_TOL_FINISHED_FLAG_FILE``.
    """

    TIMEOUTS_FILENAME = "_ft_state.json"
    FT_DIR_NAME = "ft_state"

    def __init__(
        self,
        autoresume: bool,
        calculate_timeouts: bool,
        simulated_fault_params: SimulatedFaultParams | dict[str, Any] | None = None,
        exp_dir: str | os.PathLike[str] | None = None,
        logger_name: str | None = "nemo_logger.FaultToleranceCallback",
    ) -> None:
        self.logger = logging.getLogger(logger_name)
        self.autoresume = autoresume
        self.calculate_timeouts = calculate_timeouts
        self.simulated_fault_params = parsed_fault(simulated_fault_params)
        self.provided_exp_dir = exp_dir
        self.timeouts_file_path: Path | None = None
        self._watch: HeartbeatWatch | None = None
        self._owns_session = False
        self._iterations = 0
        self._has_loaded = self._has_saved = self._has_failed = False

    @property
    def is_initialized(self) -> bool:
        return self._watch is not None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self._check_environment()
        self._iterations = 0
        self._has_loaded = self._has_saved = self._has_failed = False
        folder = self._folder(trainer)
        self._log_on_rank_0(trainer, f"Fault tolerance dir: {folder}")
        self.timeouts_file_path = folder / self.TIMEOUTS_FILENAME
        timeouts = self._known_timeouts(trainer)
        self._owns_session = begin_session({})
        self.begin_timing(trainer)
        self._watch = HeartbeatWatch(trainer.global_rank, timeouts, self.logger)
        self._watch.start()
        if self.simulated_fault_params is not None:
            start_fault(
                self.simulated_fault_params,
                rank=trainer.global_rank,
                world_size=trainer.world_size,
                broadcast=lambda value: int(trainer.strategy.broadcast(value, src=0)),
                report=process.report_injection,
            )

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or self._watch is None:
            return
        if self.autoresume and trainer.is_global_zero and self._is_complete(trainer):
            self._create_finished_flag()
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._watch is not None:
            is_clean_exit = isinstance(exception, SystemExit) and not exception.code
            self._has_failed = not is_clean_exit
            self._end(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        self._beat()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._iterations += 1
        self._beat()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._beat()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_validation_start(trainer, pl_module)
        self._beat()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self._beat()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        super().on_validation_end(trainer, pl_module)
        self._beat()

    def on_load_checkpoint(self, *_: Any) -> None:
        self._has_loaded = True

    def on_save_checkpoint(self, *_: Any) -> None:
        if self._watch is not None:
            self._has_saved |= self._watch.heartbeats > 0
            self._beat()

    def _beat(self) -> None:
        if self._watch is not None:
            self._watch.beat()

    def _check_environment(self) -> None:
        if self.autoresume and not os.environ.get(FINISHED_FLAG):
            message = (
                f"{FINISHED_FLAG!r} env variable is not set; expected the path of a file that says "
                "that the training is complete. Set it where the job is started, or leave "
                "autoresume off."
            )
            raise RuntimeError(message)

    def _folder(self, trainer: Any) -> Path:
        if self.provided_exp_dir:
            folder = Path(self.provided_exp_dir)
        else:
            folder = Path(trainer.log_dir) / self.FT_DIR_NAME
            if trainer.is_global_zero:
                create_folder(folder)
            trainer.strategy.barrier()
        if not folder.is_dir():
            message = f"Fault tolerance save directory does not exist: {folder}"
            raise ValueError(message)
        return folder

    def _known_timeouts(self, trainer: Any) -> HeartbeatTimeouts:
        assert self.timeouts_file_path is not None
        timeouts = HeartbeatTimeouts()
        if self.calculate_timeouts:
            timeouts = read_timeouts(self.timeouts_file_path)
            if timeouts.are_valid:
                self._log_on_rank_0(trainer, f"Fault tolerance timeouts loaded: {timeouts}")
        known = str(timeouts) if timeouts.are_valid else "not calculated yet."
        if not self.calculate_timeouts:
            known = "those that the collector learns."
        self._log_on_rank_0(trainer, f"Fault tolerance client initialized. Timeouts: {known}")
        return timeouts

    def _end(self, trainer: Any) -> None:
        self._beat()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
            if self._may_calculate():
                self._calculate(trainer, watch)
        self.end_timing(trainer)
        if self._owns_session:
            self._owns_session = False
            process.shutdown()

    def _may_calculate(self) -> bool:
        return (
            self.calculate_timeouts
            and self._iterations >= _MIN_ITERATIONS
            and self._has_loaded
            and self._has_saved
            and not self._has_failed
        )

    def _calculate(self, trainer: Any, watch: HeartbeatWatch) -> None:
        """On all ranks: the longest intervals of any."""
        import torch

        assert self.timeouts_file_path is not None
        self._log_on_rank_0(trainer, "Updating FT timeouts...")
        longest = torch.tensor(
            [watch.longest_initial_s, watch.longest_s], device=trainer.strategy.root_device
        )
        initial_s, subsequent_s = trainer.strategy.reduce(longest, reduce_op="max").tolist()
        timeouts = calculated_timeouts(initial_s, subsequent_s, watch.timeouts)
        self._log_on_rank_0(trainer, f"Updated FT timeouts. New values: {timeouts}")
        if trainer.is_global_zero:
            write_timeouts(self.timeouts_file_path, timeouts)

    def _is_complete(self, trainer: Any) -> bool:
        """Whether a limit is reached; or nothing was left to do: a fit whose time is over makes one
        iteration more."""
        if self._iterations <= 1 and not self._has_failed:
            return True
        limits = (
            (trainer.max_steps, trainer.global_step),
            (trainer.max_epochs, trainer.current_epoch),
        )
        return any(limit is not None and 0 < limit <= reached for limit, reached in limits)

    def _create_finished_flag(self) -> None:
        try:
            Path(os.environ[FINISHED_FLAG]).touch()
        except OSError as error:
            self.logger.error(f"cannot create the file that {FINISHED_FLAG} names: {error}")

    def _log_on_rank_0(self, trainer: Any, message: str) -> None:
        if trainer.is_global_zero:
            self.logger.info(f"[FaultToleranceCallback@rank0] {message}")
