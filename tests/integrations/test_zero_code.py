"""Zero code: the training of a program that does not mention this package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import otel_straggler as ots
from otel_straggler import semconv
from otel_straggler.client.guard import GUARD
from otel_straggler.client.process import current
from otel_straggler.integrations.zero_code import StragglerInstrumentor
from otel_straggler.testing import CapturedRequests

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
optimizers = pytest.importorskip("torch.optim.optimizer")

HERE = Path(__file__).parent
PROGRAM = HERE / "plain_training.py"
GROUP = "opentelemetry_instrumentor"
SECTIONS = {"data_loading", "forward", "backward", "optimizer"}
NO_TORCH = """
import sys
from otel_straggler.integrations.zero_code import StragglerInstrumentor
StragglerInstrumentor().instrument()
heavy = {"torch", "numpy", "google.protobuf"} & set(sys.modules)
StragglerInstrumentor().uninstrument()
sys.exit(str(heavy) if heavy else 0)
"""

ALONE = """
import sys
sys.modules["opentelemetry.instrumentation"] = None
from otel_straggler.integrations.zero_code import StragglerInstrumentor
assert StragglerInstrumentor() is StragglerInstrumentor()
before = list(sys.meta_path)
StragglerInstrumentor().instrument()
assert sys.meta_path != before
StragglerInstrumentor().uninstrument()
assert sys.meta_path == before
"""


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[CapturedRequests]:
    """Where the environment sends telemetry of a run."""
    captured = CapturedRequests()
    monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", captured.url)
    monkeypatch.setenv("OTEL_STRAGGLER_RUN_ID", "zero")
    yield captured
    StragglerInstrumentor().uninstrument()
    ots.shutdown()
    captured.close()


@pytest.fixture
def instrumented(sink: CapturedRequests) -> CapturedRequests:
    StragglerInstrumentor().instrument()
    return sink


def train(model: Any, call: Any = None, steps: int = 4) -> Any:
    """A bare loop; the optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in data.DataLoader(data.TensorDataset(torch.ones(steps, 2))):
        optimizer.zero_grad()
        (call or model)(x).sum().backward()
        optimizer.step()
    return optimizer


def sections(sink: CapturedRequests) -> Counter[tuple[str, int | None]]:
    """How often each section is in each step, without those before the first."""
    ots.flush()
    spans = Counter(
        (span.attributes["straggler.section"], span.attributes.get("training.step"))
        for span in sink.spans()
        if "straggler.section" in span.attributes
    )
    return Counter({key: count for key, count in spans.items() if key[1] is not None})


def of_step(*numbers: int) -> Counter[tuple[str, int | None]]:
    return Counter({(name, number): 1 for name in SECTIONS for number in numbers})


def without_first_fetch(counted: Counter[tuple[str, int | None]]) -> Any:
    return Counter({**counted, ("data_loading", 0): 1})


def test_telemetry_begins_with_the_first_optimizer_step(instrumented: CapturedRequests) -> None:
    """A process that does not train sends nothing. Steps are from the second on."""
    model = torch.nn.Linear(2, 2)
    model(torch.ones(2)).sum().backward()
    assert current() is None
    train(model)
    assert current() is not None
    assert without_first_fetch(sections(instrumented)) == of_step(0, 1, 2)


def test_uninstrument_leaves_torch_as_it_was(sink: CapturedRequests) -> None:
    """The very objects, no hook, and no telemetry."""

    def patched() -> list[Any]:
        return [
            vars(data.DataLoader)["__iter__"],
            torch.autograd.backward,
            vars(torch.amp.GradScaler)["step"],
            dict(optimizers._global_optimizer_pre_hooks),
            dict(optimizers._global_optimizer_post_hooks),
            list(sys.meta_path),
        ]

    before = patched()
    for _ in range(2):
        StragglerInstrumentor().instrument()
        assert not any(now is was for now, was in zip(patched()[:3], before[:3], strict=True))
        model = torch.nn.Linear(2, 2)
        train(model)
        assert model._forward_hooks
        StragglerInstrumentor().uninstrument()
        assert patched() == before
        assert not model._forward_hooks
        assert not model._forward_pre_hooks
        assert current() is None


class Trainer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A module that is never called, with one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({"network": torch.nn.Linear(2, 2)})
        self.unused = torch.nn.Linear(2, 2)


def test_of_a_trainer_that_is_never_called_the_models_that_are_called_count(
    instrumented: CapturedRequests,
) -> None:
    """Hooks go a level deeper until something is called, and stay nowhere else."""
    trainer = Trainer()
    train(trainer, trainer.parts["network"], steps=10)
    counted = sections(instrumented)
    assert {counted["forward", step] for step in range(5, 9)} == {1}
    hooked = [name for name, module in trainer.named_modules() if module._forward_hooks]
    assert hooked == ["parts.network"]


def test_a_wrapper_is_found_and_what_it_wraps_is_not(instrumented: CapturedRequests) -> None:
    """DDP, FSDP, a compiled module: modules that hold the model."""
    inner = torch.nn.Linear(2, 2)
    outer = torch.nn.Sequential(inner)
    unrelated = torch.nn.Linear(2, 2)
    train(outer)
    assert (len(outer._forward_hooks), len(inner._forward_hooks)) == (1, 0)
    assert not unrelated._forward_hooks
    assert sections(instrumented)["forward", 2] == 1


def test_a_program_that_configures_itself_is_left_to_it(instrumented: CapturedRequests) -> None:
    """Its own run id counts; and once it has shut down, nothing begins again."""
    ots.configure(run_id="own")
    train(torch.nn.Linear(2, 2))
    ots.shutdown()
    train(torch.nn.Linear(2, 2))
    assert current() is None
    assert {span.resource["training.run.id"] for span in instrumented.spans()} == {"own"}


def test_a_watched_loop_is_recorded_once(instrumented: CapturedRequests) -> None:
    """By ``watch()`` and by the environment."""
    model = torch.nn.Linear(2, 2)
    train(model)
    instrumented.requests.clear()
    with ots.watch(model):
        train(model)
    last = max(step for _, step in sections(instrumented) if step is not None)
    assert [sections(instrumented)[name, last] for name in SECTIONS] == [1, 1, 1, 1]


def test_settings_that_cannot_be_do_not_stop_training(
    instrumented: CapturedRequests,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are one line in the log."""
    monkeypatch.setenv("OTEL_STRAGGLER_HEARTBEAT_S", "often")
    train(torch.nn.Linear(2, 2))
    assert sum("does not begin" in message for message in caplog.messages) == 1
    assert GUARD.counts().get("watch", 0) == 0


def test_instrumenting_loads_nothing_heavy() -> None:
    """Launchers and workers of loaders start with it, too."""
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def run(*command: str) -> tuple[int, Any, str]:
    """Exit code, what the program printed, and its standard error."""
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=HERE
    )
    printed = json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
    return done.returncode, printed, done.stderr


def outcomes(sink: CapturedRequests) -> set[Any]:
    reported = {point.attributes.get(semconv.OUTCOME) for point in sink.points()}
    return reported - {None}


@pytest.mark.parametrize(
    ("argument", "code", "outcome"), [("", 0, "ok"), ("3", 3, "failed"), ("raise", 1, "failed")]
)
def test_a_script_runs_as_by_python_and_its_end_is_reported(
    sink: CapturedRequests, argument: str, code: int, outcome: str
) -> None:
    """Arguments, name, first entry of the path, exit code, traceback."""
    arguments = [argument] if argument else []
    module = "otel_straggler.integrations.zero_code"
    exit_code, about, error = run("-m", module, str(PROGRAM), *arguments)
    assert exit_code == code
    assert about["argv"] == [str(PROGRAM), *arguments]
    assert (about["name"], about["path"], about["file"]) == ("__main__", str(HERE), str(PROGRAM))
    assert about["hooks"] == 1
    assert ("ValueError: planted" in error) == (argument == "raise")
    assert outcomes(sink) == {outcome}
    assert {name for name, _ in sections(sink)} == SECTIONS


def test_a_module_runs_as_by_python(sink: CapturedRequests) -> None:
    """``-m``, found in the working directory."""
    module = "otel_straggler.integrations.zero_code"
    code, about, _ = run("-m", module, "-m", "plain_training", "0")
    assert (code, about["argv"]) == (0, [str(PROGRAM), "0"])
    assert {name for name, _ in sections(sink)} == SECTIONS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["nowhere.py"], "nowhere.py: no such file in"), ([], "got no script")],
)
def test_a_script_that_is_not_there_is_one_line(arguments: list[str], says: str) -> None:
    """As python has it; and no run begins."""
    module = "otel_straggler.integrations.zero_code"
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=HERE, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(
    find_spec("opentelemetry.instrumentation") is None,
    reason="opentelemetry-instrumentation is not installed: shows that its command finds us",
)
def test_opentelemetry_instrument_watches_a_script(sink: CapturedRequests) -> None:
    """By our entry point, in the environment of any launcher."""
    installed = distributions(name="otel-straggler")
    if not any(entry.group == GROUP for each in installed for entry in each.entry_points):
        pytest.skip("this checkout was installed before it had the entry point: make dev")
    program = "opentelemetry.instrumentation.auto_instrumentation"
    code, about, _ = run("-c", f"from {program} import run; run()", sys.executable, str(PROGRAM))
    assert (code, about["hooks"]) == (0, 1)
    assert {name for name, _ in sections(sink)} == SECTIONS


def test_the_instrumentor_works_without_opentelemetrys_package() -> None:
    """With the same methods, and as one instance."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
