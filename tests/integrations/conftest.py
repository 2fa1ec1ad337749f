"""What the tests of trainers share: an environment of their own, and what is logged."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from otel_straggler import shutdown

from .lightning_runs import LOGGER


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting comes from outside, and no session is left."""
    for name in [n for n in os.environ if n.startswith("OTEL_STRAGGLER_")]:
        if name != "OTEL_STRAGGLER_NATIVE":
            monkeypatch.delenv(name)
    yield
    shutdown()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What callbacks log to ``LOGGER``."""
    caplog.set_level(logging.INFO, LOGGER)
    return caplog
