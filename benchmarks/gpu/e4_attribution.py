"""E4: whether every kernel is counted in the section that launched it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.gpu import native
from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.named_ways import way_of
from benchmarks.gpu.ways import Off, Probed, Timed

FORWARD, STREAM, SIDE, KNOWN, BACKWARD, OPTIMIZER = 1, 2, 3, 4, 5, 6
NAMES = {
    FORWARD: "forward",
    STREAM: "second stream",
    SIDE: "side thread",
    KNOWN: "known",
    BACKWARD: "backward with recompute",
    OPTIMIZER: "optimizer",
}
OUTSIDE = "no section"
LAUNCHES = 500
"""In the section whose kernels are known without a profiler."""


def measure(notebook: Notebook) -> None:
    """The same steps under torch.profiler, one session per section, and in our ways."""
    steps = 2 if notebook.is_quick else 10
    orders = {"m1": steps, "m2": steps, "m3": steps, "truth": 2}  # what may hang comes last
    each: dict[str, dict[str, float]] = {}
    with arms_of(__name__, tuple(orders), {}) as arms:
        for name, times in orders.items():
            answer = arms.round(0, 30, {name: {"steps": times}}).get(name)
            notebook.failures(arms.failures)
            if answer is not None:
                each[name] = answer["kernels_per_step"]
                _write(notebook, each)
        facts = arms.round(0, 10, {name: {"finish": True} for name in ("m1", "m2", "m3")})
        notebook.fact("seen", facts)


def _write(notebook: Notebook, each: Mapping[str, Mapping[str, float]]) -> None:
    notebook.fact("kernels per step", each)
    truth = each.get("truth", {})
    for name, reported in each.items():
        if truth and name != "truth":
            notebook.figure(f"attributed {name}", attributed(reported, truth))
        notebook.figure(f"known {name}", reported.get(NAMES[KNOWN], 0))


def attributed(reported: Mapping[str, float], truth: Mapping[str, float]) -> float:
    """Percent of the true kernels that are in their section, less those that are in a wrong one.

    >>> attributed({"forward": 9, "backward": 11}, {"forward": 10, "backward": 10})
    95.0
    """
    total = sum(truth.values())
    missing = sum(max(0.0, count - reported.get(name, 0)) for name, count in truth.items())
    sections = set(reported) - {OUTSIDE}
    too_many = sum(max(0.0, reported[name] - truth.get(name, 0.0)) for name in sections)
    return round(100 * (1 - max(missing, too_many) / total), 4) if total else float("nan")


class Arm:
    """Steps with sections of every sort."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._cuda = cuda()
        self._cuda.begin()
        self._way: Off = _Truth(self._cuda) if name == "truth" else way_of(self._cuda, name)
        self._work = _Work(self._cuda)
        for _ in range(3):
            self._work.step(Off(self._cuda))
        self._cuda.synchronize()
        if isinstance(self._way, Probed):
            self._way.probe.reading(native.KEEP)
        self._way.start()
        if isinstance(self._way, Probed):
            self._way.probe.reading(native.KEEP)

    def turn(self, steps: int) -> dict[str, Any]:
        """Kernels by section, per step."""
        self._way.begin_turn()
        for _ in range(steps):
            self._work.step(self._way)
        self._cuda.synchronize()
        counts = _counts(self._way)
        self._way.end_turn()
        return {
            "kernels_per_step": {
                NAMES.get(section, OUTSIDE): count / steps for section, count in counts.items()
            }
        }

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return self._way.facts()


class _Work:
    """A model whose middle is computed again in backward."""

    def __init__(self, cuda: Any) -> None:
        torch = cuda.torch
        self._cuda = cuda
        width = 32 if cuda.is_fake else 512
        layers = [torch.nn.Linear(width, width, device=cuda.device) for _ in range(4)]
        self._first, self._middle, self._last, self._side = layers
        parameters = [p for layer in layers for p in layer.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=True)
        self._x = torch.ones(width, width, device=cuda.device)
        self._counted = torch.ones(16, device=cuda.device)
        self._stream = cuda.stream()

    def step(self, way: Off) -> None:
        self._in(way, STREAM, self._on_second_stream)
        self._in(way, SIDE, self._in_thread)
        self._in(way, KNOWN, self._known)
        self._in(way, FORWARD, self._forward)
        self._in(way, BACKWARD, self._backward)
        self._in(way, OPTIMIZER, self._optimizer.step)
        self._optimizer.zero_grad(set_to_none=True)

    def _in(self, way: Off, section: int, work: Callable[[], Any]) -> None:
        way.begin(section)
        with self._cuda.launches():
            work()
        way.end()

    def _forward(self) -> None:
        from torch.utils.checkpoint import checkpoint

        torch = self._cuda.torch
        x = torch.relu(self._first(self._x))
        x = checkpoint(lambda y: torch.relu(self._middle(y)) ** 2, x, use_reentrant=False)
        self._loss = self._last(x).sum() + self._side(self._x).mean()

    def _backward(self) -> None:
        self._loss.backward()

    def _on_second_stream(self) -> None:
        with self._cuda.on(self._stream):
            for _ in range(20):
                self._x @ self._x

    def _in_thread(self) -> None:
        def work() -> None:
            with self._cuda.launches():
                for _ in range(20):
                    self._x @ self._x

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    def _known(self) -> None:
        for _ in range(LAUNCHES):
            self._counted.add_(1)


class _Truth(Off):
    """A session of torch.profiler around each section."""

    def start(self) -> None:
        self.counts: Counter[int] = Counter()
        self.begin(KNOWN)  # the first session may miss what comes early
        self.end()
        self.counts.clear()

    def begin(self, section: int) -> None:
        self.cuda.synchronize()
        self._section = section
        self._session = self.cuda.session()
        self._session.start()

    def end(self) -> None:
        self.cuda.synchronize()
        self._session.stop()
        self.counts[self._section] += self._session.kernels()


def _counts(way: Off) -> Counter[int]:
    if isinstance(way, _Truth):
        return way.counts
    if isinstance(way, Timed):
        result: Counter[int] = Counter()
        for kernel in way.kernels():
            result[kernel[2]] += kernel[3]
        return result
    assert isinstance(way, Probed)
    way.probe.flush(0)
    return by_external(way.probe.take())


def by_external(records: Any) -> Counter[int]:
    """Kernels by the id that was pushed around their launch; 0 where none was."""
    reported = records[records["kind"] == native.EXTERNAL]
    section_of = dict(
        zip(reported["correlation"].tolist(), reported["external"].tolist(), strict=True)
    )
    kernels = records[records["kind"] == native.KERNEL]["correlation"]
    return Counter(section_of.get(number, 0) for number in np.asarray(kernels).tolist())


make_arm = Arm
EXPERIMENT = Experiment(
    key="E4",
    question="Whether every kernel is counted in the section that launched it",
    expected=(
        Expected(figure="attributed m1", unit="%", minimum=99.9, is_requirement=True),
        Expected(figure="attributed m2", unit="%", minimum=99.9),
        Expected(figure="attributed m3", unit="%", maximum=99),
        Expected(figure="known truth", minimum=LAUNCHES, maximum=LAUNCHES),
        Expected(figure="known m1", minimum=LAUNCHES, maximum=LAUNCHES, is_requirement=True),
        Expected(figure="known m3", minimum=LAUNCHES, maximum=LAUNCHES),
        Expected(figure="known m2", minimum=LAUNCHES, maximum=LAUNCHES, is_requirement=True),
    ),
    limit_s=100,
    budget_s=20,
    measure=measure,
)
