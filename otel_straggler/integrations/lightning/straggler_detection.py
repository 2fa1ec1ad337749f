"""``StragglerDetectionCallback``: reports over the ranks of a fit, with NVRx's parameters."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from otel_straggler.detector import Detector
from otel_straggler.detector.sections import SECTIONS
from otel_straggler.integrations.lightning.step_timing import TimingCallback
from otel_straggler.integrations.step_sections import BACKWARD, FORWARD, OPTIMIZER
from otel_straggler.report.types import Report, Scores

_WARNING = "STRAGGLER DETECTION WARNING:"
_REQUIRED: Any = object()
"""Default of arguments that must be given, after one that has two names."""


class StragglerDetectionCallback(TimingCallback):
    """Scores the ranks of a fit against each other and against their own past, as NVRx's does.

    It also times the sections of a step (data_loading, forward, backward, optimizer). A collector
    gets them where one is named (``OTEL_STRAGGLER_ENDPOINT``, or ``configure()`` before the fit).

    Args:
        report_time_interval: seconds between reports.
        calc_relative_gpu_perf: score against the fastest rank.
        calc_individual_gpu_perf: score against the rank's own best.
        num_gpu_perf_scores_to_print: so many best and worst scores are logged with each report; 0:
            only stragglers are.
        gpu_relative_perf_threshold, gpu_individual_perf_threshold: ranks with GPU scores below are
            stragglers.
        stop_if_detected: save the last checkpoint and end all ranks with exit code 1 when there are
            stragglers.
        enable_ptl_logging: also log minimum, median and maximum of the scores to the trainer's
            loggers, as ``gpu_relative_perf/min`` and the like.
        profiling_interval: sections of one step in so many are timed.
        logger_name: of the ``logging`` logger.
        num_gpu_perf_scores_to_log: the name of ``num_gpu_perf_scores_to_print`` in NVRx's guide.
        section_perf_threshold: ranks with a section's score below it are stragglers, too; None, as
            in NVRx: sections are not judged. Without a GPU there are no other scores.

    Raises:
        ValueError: neither relative nor individual scores are asked for; or not exactly one of
            ``num_gpu_perf_scores_to_print`` and ``num_gpu_perf_scores_to_log`` is given.
    """

    def __init__(
        self,
        report_time_interval: float,
        calc_relative_gpu_perf: bool,
        calc_individual_gpu_perf: bool,
        num_gpu_perf_scores_to_print: int | None = None,
        gpu_relative_perf_threshold: float = _REQUIRED,
        gpu_individual_perf_threshold: float = _REQUIRED,
        stop_if_detected: bool = _REQUIRED,
        enable_ptl_logging: bool = False,
        profiling_interval: int = 1,
        logger_name: str | None = "nemo_logger.StragglerDetectionCallback",
        *,
        num_gpu_perf_scores_to_log: int | None = None,
        section_perf_threshold: float | None = None,
    ) -> None:
        _check_given(
            gpu_relative_perf_threshold=gpu_relative_perf_threshold,
            gpu_individual_perf_threshold=gpu_individual_perf_threshold,
            stop_if_detected=stop_if_detected,
        )
        self.initialized = False
        self._why_no_scores = ""
        self.logger = logging.getLogger(logger_name)
        self.report_time_interval = report_time_interval
        self.calc_relative_gpu_perf = calc_relative_gpu_perf
        self.calc_individual_gpu_perf = calc_individual_gpu_perf
        self.num_gpu_perf_scores_to_print = _one_of(
            num_gpu_perf_scores_to_print, num_gpu_perf_scores_to_log
        )
        self.gpu_relative_perf_threshold = gpu_relative_perf_threshold
        self.gpu_individual_perf_threshold = gpu_individual_perf_threshold
        self.section_perf_threshold = section_perf_threshold
        self.stop_if_detected = stop_if_detected
        self.enable_ptl_logging = enable_ptl_logging
        self.profiling_interval = profiling_interval
        self.scores_to_compute = _scores_to_compute(
            calc_relative_gpu_perf, calc_individual_gpu_perf
        )

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.initialized or stage != "fit":
            return
        SECTIONS.profile(FORWARD, BACKWARD, OPTIMIZER)  # hooks open them, and not the detector
        Detector.initialize(
            scores_to_compute=self.scores_to_compute,
            gather_on_rank0=True,
            profiling_interval=self.profiling_interval,
            report_time_interval=self.report_time_interval,
        )
        self.begin_timing(trainer, every=self.profiling_interval)
        self.initialized = True

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(trainer)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        began_s = time.monotonic()
        report = Detector.generate_report_if_interval_elapsed()
        is_detected = False
        if report is not None and trainer.global_rank == 0:
            is_detected = self._handle(report, pl_module)
        if not Detector.is_interval_elapsed():
            return
        if self.stop_if_detected and trainer.strategy.broadcast(is_detected, src=0):
            self._stop(trainer)
        elapsed_s = time.monotonic() - began_s
        self.logger.info(f"Straggler report processing time: {elapsed_s:.3f} sec.")

    def _end(self, trainer: Any) -> None:
        if self.initialized:
            self.initialized = False
            self.end_timing(trainer)
            Detector.shutdown()

    def _handle(self, report: Report, pl_module: Any) -> bool:
        """Log a report; whether it lists stragglers."""
        is_detected = self._log_stragglers(report)
        self._log_missing(report.why_no_gpu_scores())
        for name, scores in self._gpu_scores(report).items():
            if self.num_gpu_perf_scores_to_print > 0:
                listed = listed_scores(
                    scores, report.rank_to_node, self.num_gpu_perf_scores_to_print
                )
                self.logger.info(f"\nGPU {name} performance:\n{listed}")
            if self.enable_ptl_logging:
                self._log_to_trainer(pl_module, f"gpu_{name}_perf", scores)
        return is_detected

    def _gpu_scores(self, report: Report) -> dict[str, Scores]:
        scores = {}
        if self.calc_relative_gpu_perf:
            scores["relative"] = report.gpu_relative_perf_scores
        if self.calc_individual_gpu_perf:
            scores["individual"] = report.gpu_individual_perf_scores
        return scores

    def _log_stragglers(self, report: Report) -> bool:
        threshold = self.section_perf_threshold
        stragglers = report.identify_stragglers(
            gpu_rel_threshold=self.gpu_relative_perf_threshold,
            gpu_indiv_threshold=self.gpu_individual_perf_threshold,
            section_rel_threshold=threshold or 0.0,
            section_indiv_threshold=threshold or 0.0,
        )
        messages = {
            "Some GPUs have worse relative performance.": stragglers["straggler_gpus_relative"],
            "Some GPUs performance dropped.": stragglers["straggler_gpus_individual"],
        }
        if threshold is not None:
            for kind, than in (("relative", "others"), ("individual", "before")):
                by_section: Any = stragglers[f"straggler_sections_{kind}"]
                for name, ranks in by_section.items():
                    messages[f"Some ranks are slower than {than} in section {name!r}."] = ranks
        for message, ranks in messages.items():
            if ranks:
                self.logger.warning(f"{_WARNING} {message} Affected ranks: {ranks}")
        return any(messages.values())

    def _log_missing(self, why: str) -> None:
        """Why GPU scores are NaN: once, until it changes."""
        before, self._why_no_scores = self._why_no_scores, why
        if why not in ("", before):
            self.logger.warning(why[0].upper() + why[1:])

    def _log_to_trainer(self, pl_module: Any, prefix: str, scores: Scores) -> None:
        values = {f"{prefix}/{name}": value for name, value in summary(scores).items()}
        try:
            pl_module.log_dict(values, logger=True, batch_size=1, rank_zero_only=True)
        except Exception as error:  # noqa: BLE001 - loggers are another's, in the training loop
            self.logger.error(f"Failed to log GPU performance scores: {error}")

    def _stop(self, trainer: Any) -> None:
        """On all ranks at once: save, and exit with code 1."""
        self.logger.error("Detected stragglers. Terminating training...")
        trainer.should_stop = True
        if trainer.checkpoint_callback:
            save_last_checkpoint(trainer)
        finalize = getattr(trainer.strategy.checkpoint_io, "maybe_finalize_save_checkpoint", None)
        if finalize is not None:
            self.logger.info("Async checkpointing detected, waiting for it to complete...")
            finalize(blocking=True)
        sys.exit(1)


def save_last_checkpoint(trainer: Any) -> None:
    """Save what the checkpoint callback calls its last checkpoint, even where it keeps none by
    itself. All ranks call it."""
    callback = trainer.checkpoint_callback
    candidates = callback._monitor_candidates(trainer)  # noqa: SLF001  as NVRx's callback does
    if callback.save_last:
        callback._save_last_checkpoint(trainer, candidates)  # noqa: SLF001
    else:
        name = callback.CHECKPOINT_NAME_LAST
        trainer.save_checkpoint(callback.format_checkpoint_name(candidates, name))


def listed_scores(scores: Scores, nodes: Mapping[int, str], count: int) -> str:
    """The worst and best ``count`` scores, or all of at most twice as many; worst first, ranks
    without a score last.

    >>> print(listed_scores({0: 1.0, 1: 0.5}, {0: "a", 1: "b"}, 1), end="")
      Rank=1 Node=b Score=0.50
      Rank=0 Node=a Score=1.00
    """
    ascending = sorted(scores.items(), key=lambda item: (math.isnan(item[1]), item[1], item[0]))
    lines = [f"  Rank={r} Node={nodes.get(r, '')} Score={score:.2f}\n" for r, score in ascending]
    if len(lines) <= 2 * count:
        return "".join(lines)
    worst = f" Worst performing {count}/{len(lines)} ranks:\n" + "".join(lines[:count])
    scored = sum(not math.isnan(score) for _, score in ascending) or len(lines)
    best = lines[max(0, scored - count) : scored][::-1]
    return worst + f" Best performing {count}/{len(lines)} ranks:\n" + "".join(best)


def summary(scores: Scores) -> dict[str, float]:
    """Minimum, lower median and maximum of the scores that there are; NaN without any.

    >>> summary({0: 1.0, 1: 0.5, 2: float("nan")})
    {'min': 0.5, 'median': 0.5, 'max': 1.0}
    """
    known = sorted(score for score in scores.values() if not math.isnan(score))
    if not known:
        return dict.fromkeys(("min", "median", "max"), math.nan)
    return {"min": known[0], "median": known[(len(known) - 1) // 2], "max": known[-1]}


def _scores_to_compute(relative: bool, individual: bool) -> list[str]:
    scores = ["relative_perf_scores"] * bool(relative)
    scores += ["individual_perf_scores"] * bool(individual)
    if not scores:
        message = (
            "No straggler performance scores specified. Check if calc_relative_gpu_perf=True or "
            "calc_individual_gpu_perf=True"
        )
        raise ValueError(message)
    return scores


def _one_of(to_print: int | None, to_log: int | None) -> int:
    given = [count for count in (to_print, to_log) if count is not None]
    if len(given) == 1:
        return given[0]
    message = (
        f"num_gpu_perf_scores_to_print is {to_print} and num_gpu_perf_scores_to_log {to_log}; "
        "expected exactly one of them. Give the first."
    )
    raise ValueError(message)


def _check_given(**required: object) -> None:
    missing = [name for name, value in required.items() if value is _REQUIRED]
    if missing:
        message = f"StragglerDetectionCallback() misses required arguments: {', '.join(missing)}"
        raise TypeError(message)
