"""When waits are measured: from configure() to shutdown(), once torch is there."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler import configure, shutdown
from otel_straggler.client.collectives.session import SOURCES, TIMERS, CollectiveWaits, Source
from otel_straggler.client.recording import RECORDER

torch = pytest.importorskip("torch")
NOWHERE = "http://127.0.0.1:1"
Work = torch._C._distributed_c10d.Work


def replaced() -> dict[str, Any]:
    """What is replaced while waits are measured."""
    return {
        "backward": torch.autograd.backward,
        "wait": vars(Work)["wait"],
        "_broadcast_coalesced": torch.distributed._broadcast_coalesced,
        "_pre_forward": vars(torch.nn.parallel.DistributedDataParallel)["_pre_forward"],
    }


ORIGINAL = replaced()


def run(program: str, **env: str) -> Any:
    """What a process of its own prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OTEL_STRAGGLER_ENDPOINT": NOWHERE, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_torch_is_as_it_was_after_shutdown() -> None:
    """The very objects, and again after a second session."""
    for _ in range(2):
        configure(endpoint=NOWHERE)
        assert not replaced().items() & ORIGINAL.items()
        shutdown()
        assert replaced() == ORIGINAL
        assert all(now is ORIGINAL[name] for name, now in replaced().items())


@pytest.mark.parametrize("given", [{"collectives": "off"}, {}])
def test_switched_off_torch_is_left_alone(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the argument or by the environment; nor is any watch of imports put up."""
    if not given:
        monkeypatch.setenv("OTEL_STRAGGLER_COLLECTIVES", "off")
    finders = list(sys.meta_path)
    configure(endpoint=NOWHERE, **given)  # type: ignore[arg-type]
    assert replaced() == ORIGINAL
    assert sys.meta_path == finders


def test_what_others_have_wrapped_stays_and_measures_nothing() -> None:
    """Theirs calls ours, which calls torch's."""
    configure(endpoint=NOWHERE)
    ours = torch.autograd.backward
    calls = []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    try:
        shutdown()
        assert torch.autograd.backward is theirs
        RECORDER.enable()
        weight = torch.ones(1, requires_grad=True)
        loss = (weight * 3).sum()
        loss.backward()
        assert (calls, weight.grad.item(), loss._backward_hooks) == ([1], 3.0, None)
    finally:
        torch.autograd.backward = ORIGINAL["backward"]


def test_a_source_that_torch_does_not_have_is_left_out_with_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured, and what is not seen is said."""
    monkeypatch.delattr(torch.distributed, "_broadcast_coalesced")
    caplog.set_level(logging.INFO, "otel_straggler")
    waits = CollectiveWaits()
    waits.start()
    assert torch.autograd.backward is not ORIGINAL["backward"]
    waits.close()
    [line] = caplog.messages
    assert line.startswith("waiting for buffers that DDP broadcasts in forward() is not measured")
    assert "_broadcast_coalesced" in line
    assert torch.autograd.backward is ORIGINAL["backward"]


class Unsettable(type):
    """Of a class whose attributes stay what they are."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError(f"cannot set {name!r} of immutable type")


class Ignoring(type):
    """The same, and says nothing."""

    def __setattr__(cls, name: str, value: object) -> None:
        pass


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("torch._C._distributed_c10d", "Work", Unsettable("Work", (), {"wait": lambda _: None})),
        ("torch._C._distributed_c10d", "Work", Ignoring("Work", (), {"wait": lambda _: None})),
        ("torch._C._distributed_c10d", "Work", type("Work", (), {"wait": 3})),
        ("torch.autograd.Variable", "_execution_engine", object()),
        ("torch.autograd", "backward", None),
    ],
)
def test_a_torch_that_is_otherwise_is_survived(
    place: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line says what is not measured then."""
    owner: Any = sys.modules["torch"]
    for part in place.split(".")[1:]:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, name, value)
    waits = CollectiveWaits()
    waits.start()
    waits.close()
    assert [line for line in caplog.messages if "is not measured with this torch" in line]
    assert len(caplog.messages) == 1
    monkeypatch.undo()
    assert replaced() == ORIGINAL


def test_a_torch_without_collectives_is_left_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to wait for, and nothing to say."""
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    waits = CollectiveWaits()
    waits.start()
    assert replaced() == ORIGINAL
    assert not caplog.messages
    waits.close()


def test_a_module_that_is_imported_after_the_end_is_left_alone() -> None:
    """As in a thread that imports while another one shuts down."""
    calls = []
    sources = (Source("otel_straggler_of_tests", "nowhere", lambda _: calls.append(1)),)  # type: ignore[arg-type,return-value]
    waits = CollectiveWaits(sources)
    waits.start()
    [install] = [watch._on_import for watch in waits._watches]
    waits.close()
    install()
    assert not calls


def test_torch_is_never_imported_by_us_and_measured_once_it_is() -> None:
    """Imported after configure(), as are functional collectives, which torch imports late."""
    program = """
import json, sys
import otel_straggler as ots
finders = list(sys.meta_path)
ots.configure()
result = {"before": "torch" in sys.modules}
import importlib.util
importlib.util.find_spec("torch")  # as libraries ask whether it is installed
import torch
result["ours"] = "otel_straggler" in torch.autograd.backward.__code__.co_filename
name = "torch.distributed._functional_collectives"
result["late"] = name in sys.modules
import torch.distributed._functional_collectives as functional
result["functional"] = "otel_straggler" in functional.wait_tensor.__code__.co_filename
ots.shutdown()
result["after"] = [
    "otel_straggler" in function.__code__.co_filename
    for function in (torch.autograd.backward, functional.wait_tensor)
]
result["finders"] = [finder in finders for finder in sys.meta_path if "Watch" in repr(finder)]
print(json.dumps(result))
"""
    assert run(program) == {
        "before": False,
        "ours": True,
        "late": False,
        "functional": True,
        "after": [False, False],
        "finders": [True],  # that for Dynamo, which stays
    }


def test_where_torch_is_absent_nothing_happens() -> None:
    """Nor is it an error to look for it."""
    program = """
import json, sys
sys.modules["torch"] = None
import otel_straggler as ots
ots.configure(strict=True)
with ots.step(1), ots.section("forward"):
    pass
ots.shutdown()
print(json.dumps(True))
"""
    assert run(program) is True


def in_child(act: Callable[[], Any]) -> Any:
    """What a forked child returns, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_torch_as_it_was_until_it_configures_itself() -> None:
    """A worker of a loader measures nothing; one that is a rank of its own does."""
    configure(endpoint=NOWHERE)
    ours = replaced()

    def act() -> list[bool]:
        before = replaced() == ORIGINAL
        configure(endpoint=NOWHERE, rank=1, world_size=2)
        is_measured = not replaced().items() & ORIGINAL.items()
        shutdown()
        return [before, is_measured, replaced() == ORIGINAL]

    assert in_child(act) == [True, True, True]
    assert replaced() == ours


def test_every_source_names_what_is_not_seen_without_it() -> None:
    """In a line that reads as a sentence."""
    assert all(source.name.startswith(("at ", "in ", "for ")) for source in (*SOURCES, *TIMERS))


def test_an_applications_provider_gets_no_spans_of_ddps_timers() -> None:
    """It gets the host's times only."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    provider = trace.TracerProvider()
    configure(endpoint=NOWHERE, tracer_provider=provider)
    now = replaced()
    assert now["_pre_forward"] is ORIGINAL["_pre_forward"]
    assert now["backward"] is not ORIGINAL["backward"]
    shutdown()
    provider.shutdown()
