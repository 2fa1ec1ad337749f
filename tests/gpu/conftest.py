"""What the tests of GPU timing share: the fake libcupti, and a process that is clean before and
after."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from otel_straggler import shutdown
from otel_straggler.client.gpu import use_timer
from otel_straggler.client.gpu.profilers import PROFILERS
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import NATIVE

from .scripted import torch_with_cuda

WITHOUT_CUPTI = "the extension was not built: it would show that kernels of the fake GPU are timed"


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [n for n in os.environ if n.startswith("OTEL_") and n != "OTEL_STRAGGLER_NATIVE"]:
        monkeypatch.delenv(name)
    # Two seconds by default: less than a busy machine may stand still.
    monkeypatch.setenv("OTEL_STRAGGLER_EXIT_DEADLINE_S", "20")
    yield
    shutdown()
    RECORDER.disable()
    RECORDER.drain()
    if PROFILERS._yielding is not None:
        PROFILERS.uninstall(PROFILERS._yielding)
    use_timer(None)


@pytest.fixture
def gpu(fake_library: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU in use in this process: the fake is both driver and libcupti. Kernels are timed in
    every step."""
    if NATIVE is None:
        pytest.skip(WITHOUT_CUPTI)
    monkeypatch.setitem(sys.modules, "torch", torch_with_cuda())
    monkeypatch.setattr(Surroundings, "driver_path", lambda self: fake_library.path)
    monkeypatch.setenv("OTEL_STRAGGLER_CUPTI", fake_library.path)
    monkeypatch.setenv("OTEL_STRAGGLER_GPU_OVERHEAD", "0")
    return fake_library
