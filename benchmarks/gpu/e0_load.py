"""E0: which libcupti there is, and what it grants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.native import KERNEL
from otel_straggler.native import NATIVE, REASON

ARMS = ("before_context", "after_context", "hardware_trace")
SYMBOLS = (
    "cuptiActivityEnableDriverApi",
    "cuptiActivityEnableRuntimeApi",
    "cuptiActivityEnableHWTrace",
    "cuptiSubscribe_v2",
    "cuptiActivityRegisterCallbacks_v2",
    "cuptiActivityGetNextRecord_v2",
    "cuptiActivityRegisterTimestampCallback",
)
LAUNCHES = 100


def measure(notebook: Notebook) -> None:
    """Each arm has a process of its own: some calls cannot be taken back."""
    with arms_of(__name__, ARMS, {}) as arms:
        answers = arms.round(0, 30, {name: {} for name in ARMS})
        notebook.failures(arms.failures)
    for name, answer in answers.items():
        notebook.fact(name, answer)
    context = answers.get("after_context", {})
    if context:
        notebook.figure("extension loads", int(context["native"] == ""))
        notebook.figure("libcuptis mapped", len(context["mapped"]))
        notebook.figure("interface version", context["version"])
        notebook.figure("EnableDriverApi result", context["enable_driver_api"])
        notebook.figure("kernels, enabled after the context", context["kernels"])
    if "before_context" in answers:
        notebook.figure("kernels, enabled before the context", answers["before_context"]["kernels"])
    if "hardware_trace" in answers:
        notebook.figure("EnableHWTrace result", answers["hardware_trace"]["enable_hw_trace"])


class Arm:
    """A process that asks."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._name, self._cuda = name, cuda()

    def turn(self) -> dict[str, Any]:
        """One of the arms."""
        import ctypes

        before = self._timer_reason()
        if self._name == "after_context":
            self._cuda.begin()
        else:
            ctypes.CDLL(self._cuda.driver)  # the driver is there, a context is not
        probe = self._cuda.probe()
        result = {
            "reason_before_cuda": before,
            "native": "" if NATIVE is not None else REASON,
            "mapped": _mapped(),
            "path": probe.path,
            "version": probe.version,
            "symbols": [s for s in SYMBOLS if hasattr(probe.cupti(), s)],
            "enable_hw_trace": self._hardware_trace(probe),
            "register": probe.register(),
            "enable": probe.enable(KERNEL),
            "enable_driver_api": probe.driver_call(2, 1),
        }
        self._cuda.begin()
        probe.open_launcher(self._cuda.driver)
        probe.launch(LAUNCHES, 0, None)
        self._cuda.synchronize()
        probe.flush(0)
        counts = probe.counts()
        probe.flush(1)
        late = probe.counts()["kernels"] - counts["kernels"]
        after = {"reason_after": self._timer_reason(), "kernels_by_force_only": late}
        return {**result, **after, **counts}

    def _hardware_trace(self, probe: Any) -> int | None:
        """Once on, it cannot be switched off."""
        wanted = getattr(probe.cupti(), "cuptiActivityEnableHWTrace", None)
        return int(wanted(1)) if self._name == "hardware_trace" and wanted is not None else None

    def _timer_reason(self) -> str:
        if NATIVE is None:
            return REASON
        timer = NATIVE.KernelTimer(*self._cuda.timer_paths, False, False, False)
        path, version, is_untried = timer.library()
        return f"{path} {version} {'untried' if is_untried else ''}".strip() or "no driver yet"


def _mapped() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in lines if "libcupti.so" in line})


make_arm = Arm
EXPERIMENT = Experiment(
    key="E0",
    question="Which libcupti is loaded, and which functions it allows",
    expected=(
        Expected(figure="extension loads", minimum=1, is_requirement=True),
        Expected(figure="libcuptis mapped", minimum=1, maximum=1, is_requirement=True),
        Expected(figure="interface version", minimum=18),
        Expected(figure="EnableDriverApi result", minimum=0, maximum=0),
        Expected(figure="EnableHWTrace result", minimum=15, maximum=15),
        Expected(figure="kernels, enabled before the context", minimum=LAUNCHES),
        Expected(
            figure="kernels, enabled after the context",
            minimum=LAUNCHES,
            is_requirement=True,
        ),
    ),
    limit_s=60,
    budget_s=14,
    measure=measure,
)
