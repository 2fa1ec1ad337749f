"""The ways in which training loops run: every span has the right step and the right parent."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import configure, flush, phase, section, semconv, step
from otel_straggler.testing import CapturedRequests, CapturedSpan

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
HERE = Path(__file__).parent
Reported = tuple[str, int | None, str]
LAYER = section("layer")


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A decorated forward, and inside it a section that exists once for all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @section("forward of a layer")
    def forward(self, x: Any) -> Any:
        with LAYER:
            return self.work(x)

    def work(self, x: Any) -> Any:
        return torch.tanh(self.linear(x))


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Layers, called as they are or through ``torch.utils.checkpoint``."""

    def __init__(self, call: Callable[[Layer, Any], Any] = lambda layer, x: layer(x)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
        self.call = call

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.call(layer, x)
        return x.sum()


def inputs() -> Any:
    return torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()


@pytest.fixture(autouse=True)
def _configured(sink: CapturedRequests) -> None:
    configure(endpoint=sink.url, strict=True, span_budget=0)  # every run is looked at


@pytest.fixture
def reported(sink: CapturedRequests) -> Callable[[], Counter[Reported]]:
    """Name, step and parent's name of every span that was sent, and how many there are of each."""

    def spans() -> Counter[Reported]:
        assert flush()
        sent = sink.spans()
        assert not any(span.is_error for span in sent)
        return Counter((s.name, s.attributes.get(semconv.STEP), parent_of(s, sent)) for s in sent)

    return spans


def parent_of(span: CapturedSpan, sent: list[CapturedSpan]) -> str:
    """Its name. Within one trace; a step hangs on the root of its trace, which nobody sends."""
    for other in sent:
        if other.span_id == span.parent_id:
            assert other.trace_id == span.trace_id
            return other.name
    return "root" if span.parent_id else ""


def once(*spans: Reported) -> Counter[Reported]:
    return Counter(spans)


def test_a_step_without_anything_special(reported: Callable[[], Counter[Reported]]) -> None:
    """What the other tests vary."""
    model = Model()
    with step(7):
        with section("forward"):
            loss = model(inputs())
        with section("backward"):
            loss.backward()
    assert reported() == Counter(
        {
            ("step", 7, "root"): 1,
            ("forward", 7, "step"): 1,
            ("backward", 7, "step"): 1,
            ("forward of a layer", 7, "forward"): 2,
            ("layer", 7, "forward of a layer"): 2,
        }
    )


@pytest.mark.parametrize("is_reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_a_forward_that_is_recomputed_in_the_backward_is_timed_there_again(
    reported: Callable[[], Counter[Reported]], is_reentrant: bool
) -> None:
    """Under the backward, in its step; that torch leaves it by an exception is no error."""
    plain, checkpointed = (
        Model(),
        Model(lambda layer, x: checkpoint(layer, x, use_reentrant=is_reentrant)),
    )
    plain(inputs()).backward()
    reported()
    with step(3):
        with section("forward"):
            loss = checkpointed(inputs())
        with section("backward"):
            loss.backward()
    assert gradients(checkpointed) == gradients(plain)
    seen = {s: n for s, n in reported().items() if s[1] == 3}
    assert seen == {
        ("step", 3, "root"): 1,
        ("forward", 3, "step"): 1,
        ("backward", 3, "step"): 1,
        ("forward of a layer", 3, "forward"): 2,
        ("forward of a layer", 3, "backward"): 2,
        ("layer", 3, "forward of a layer"): 4,
    }


def gradients(model: Any) -> list[list[float]]:
    return [p.grad.flatten().tolist() for p in model.parameters()]


class Doubled(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """Sections in its forward and in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        with section("own forward"):
            return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        del ctx
        with section("own backward"):
            return gradient * 2


@pytest.mark.parametrize("is_helper", [False, True], ids=["calling thread", "thread of its own"])
def test_sections_in_hooks_and_functions_of_autograd_have_the_step(
    reported: Callable[[], Counter[Reported]], is_helper: bool
) -> None:
    """On a GPU autograd runs them in threads of its own: there they hang on the step itself."""
    x = inputs()
    handle = x.register_hook(section("hook")(lambda gradient: gradient * 1))
    with step(5), section("backward"):
        loss = Doubled.apply(x).sum()
        in_thread(loss.backward) if is_helper else loss.backward()
    handle.remove()
    around = "step" if is_helper else "backward"
    assert reported() == once(
        ("step", 5, "root"),
        ("backward", 5, "step"),
        ("own forward", 5, "backward"),
        ("own backward", 5, around),
        ("hook", 5, around),
    )
    assert torch.equal(x.grad, torch.full((2, 4), 2.0))


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("is_called_again", [False, True])
def test_a_step_of_several_microbatches_is_one_step(
    sink: CapturedRequests, reported: Callable[[], Counter[Reported]], is_called_again: bool
) -> None:
    """Gradient accumulation, also where every microbatch says again which step it belongs to."""
    model = Model()
    forward = section("forward")
    for n in range(2):
        step(n)
        for microbatch in range(3):
            if is_called_again:
                with step(n), forward.run(microbatch=microbatch):
                    model(inputs()).backward()
            else:
                with forward.run(microbatch=microbatch):
                    model(inputs()).backward()
        with section("optimizer"):
            pass
    with step(2):
        pass
    counted = reported()
    for n in range(2):
        assert counted["step", n, "root"] == 1
        assert counted["forward", n, "step"] == 3
        assert counted["optimizer", n, "step"] == 1
    sizes = [s.attributes[semconv.MICROBATCH] for s in sink.spans() if s.name == "forward"]
    assert sizes == [0, 1, 2] * 2


def test_a_section_around_steps_is_not_the_parent_of_what_is_in_them(
    reported: Callable[[], Counter[Reported]],
) -> None:
    """Every step is a trace of its own, and a parent is always of the same trace."""
    with section("epoch"):
        for n in range(2):
            with step(n), section("forward"), phase("eval"), section("inner"):
                pass
    assert reported() == once(
        ("epoch", None, ""),
        *[("step", n, "root") for n in range(2)],
        *[("forward", n, "step") for n in range(2)],
        *[("eval", n, "forward") for n in range(2)],
        *[("inner", n, "eval") for n in range(2)],
    )


def schedule(stage: int, stages: int, microbatches: int) -> Iterator[tuple[str, int]]:
    """1F1B: forwards to fill the pipeline, then one forward, one backward, then what is left."""
    ahead = min(stages - stage, microbatches)
    yield from (("forward", m) for m in range(ahead))
    for done in range(microbatches):
        yield "backward", done
        if done + ahead < microbatches:
            yield "forward", done + ahead


class LostError(Exception):
    """A microbatch that is to be done again."""


def run_stage(stage: int, stages: int, microbatches: int, rng: random.Random) -> None:
    model = Model()
    losses = {}
    for what, microbatch in schedule(stage, stages, microbatches):
        with section(f"{what} {stage}").run(microbatch=microbatch):
            try:
                with section(f"receive {stage}", kind="wait"):
                    if rng.random() < 0.3:
                        raise LostError
            except LostError:
                with section(f"again {stage}", kind="wait"):
                    pass
            if what == "forward":
                losses[microbatch] = model(inputs())
            else:
                losses.pop(microbatch).backward()


def test_stages_in_threads_do_not_mix_their_sections(sink: CapturedRequests) -> None:
    """Interleaved microbatches, sections in another order in every stage, exceptions in between."""
    stages, microbatches = 4, 6
    for n in range(2):
        with step(n):
            threads = [
                threading.Thread(
                    target=run_stage, args=(s, stages, microbatches, random.Random(10 * n + s))
                )
                for s in range(stages)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    assert flush()
    sent = sink.spans()
    again = {span.parent_id for span in sent if span.name.startswith("again")}
    assert again
    for span in sent:
        assert span.is_error == (span.name.startswith("receive") and span.parent_id in again)
        assert parent_of(span, sent) in parents_of_a_stage(span.name)
    runs = Counter((s.name, s.attributes[semconv.STEP]) for s in sent)
    for n in range(2):
        assert runs["step", n] == 1
        for stage in range(stages):
            assert runs[f"forward {stage}", n] == runs[f"backward {stage}", n] == microbatches
            assert runs[f"receive {stage}", n] == 2 * microbatches


def parents_of_a_stage(name: str) -> set[str]:
    what, stage = name.split(maxsplit=1)[0], name[-1]
    if name in {"forward of a layer", "layer"}:
        return {f"forward {n}" for n in range(4)} if name != "layer" else {"forward of a layer"}
    if what in {"receive", "again"}:
        return {f"forward {stage}", f"backward {stage}"}
    return {"root"} if name == "step" else {"step"}


def compiled_model() -> Any:
    torch._dynamo.reset()
    return torch.compile(Model(), backend="aot_eager", fullgraph=True)


def compiled_checkpoints() -> Any:
    torch._dynamo.reset()
    model = Model(lambda layer, x: checkpoint(layer, x, use_reentrant=False))
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def compiled_work() -> Any:
    """Only what does the work is compiled; the forwards around it are not."""
    torch._dynamo.reset()
    model = Model()
    for layer in model.layers:
        layer.work = torch.compile(layer.work, backend="aot_eager", fullgraph=True)
    return model


@pytest.mark.parametrize(
    ("make", "layers"), [(compiled_model, 0), (compiled_checkpoints, 0), (compiled_work, 2)]
)
def test_a_compiled_model_is_timed_from_outside(
    reported: Callable[[], Counter[Reported]], make: Callable[[], Any], layers: int
) -> None:
    """Gradients are the same, and what is compiled opens no section."""
    plain, model = Model(), make()
    plain(inputs()).backward()
    reported()
    with step(3):
        with section("forward"):
            loss = model(inputs())
        with section("backward"):
            loss.backward()
    assert gradients(model) == gradients(plain)
    seen = Counter({s: n for s, n in reported().items() if s[1] == 3})
    assert seen == Counter(
        {
            ("step", 3, "root"): 1,
            ("forward", 3, "step"): 1,
            ("backward", 3, "step"): 1,
            ("forward of a layer", 3, "forward"): layers,
            ("layer", 3, "forward of a layer"): layers,
        }
    )


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_model_with_sections_can_be_exported(
    reported: Callable[[], Counter[Reported]], is_strict: bool
) -> None:
    """torch.export sees none of them."""
    x = inputs().detach()
    exported = torch.export.export(Model(), (x,), strict=is_strict)
    reported()
    assert torch.equal(exported.module()(x), Model()(x))
    assert "otel_straggler" not in exported.graph_module.code


def run_program(name: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, HERE / name, *arguments],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_workers_that_open_sections_change_nothing(sink: CapturedRequests, start: str) -> None:
    """Neither those that are forked while a section is open, nor those that start anew."""
    endpoint = {"OTEL_STRAGGLER_ENDPOINT": sink.url}
    assert output_of(run_program("loader_program.py", start, **endpoint)) == "28.0\n"
    sent = sink.spans()
    spans = Counter((s.name, s.attributes.get(semconv.STEP), parent_of(s, sent)) for s in sent)
    per_step = [("step", "root"), ("batch", "step"), ("forward", "step")]
    assert spans == once(
        ("epoch", None, ""), *[(name, n, parent) for n in range(4) for name, parent in per_step]
    )


def test_two_ranks_of_distributed_data_parallel(sink: CapturedRequests, tmp_path: Path) -> None:
    """Hooks run inside of the backward that they belong to, on each rank for itself."""
    common = {"OTEL_STRAGGLER_ENDPOINT": sink.url, "OTEL_STRAGGLER_RUN_ID": "ddp"}
    ranks = [
        run_program(
            "ddp_rank.py", str(tmp_path / "meet"), str(rank),
            RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), **common,
        )
        for rank in range(2)
    ]  # fmt: skip
    weights = [output_of(process) for process in ranks]
    assert weights[0] == weights[1]
    for rank in range(2):
        sent = [s for s in sink.spans() if s.resource[semconv.RANK] == rank]
        spans = Counter((s.name, s.attributes[semconv.STEP], parent_of(s, sent)) for s in sent)
        assert spans == Counter(
            {
                (name, n, parent): runs
                for n in range(2)
                for name, parent, runs in (
                    ("step", "root", 1),
                    ("forward", "step", 2),
                    ("backward", "step", 2),
                    ("hook", "backward", 2),
                    ("send", "backward", 1),
                    ("optimizer", "step", 1),
                )
            }
        )
