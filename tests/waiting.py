"""Waiting for a fact that others bring about, by asking again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(claim: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until ``claim`` holds; its value. Fails with the last value after ``seconds``."""
    until_s = time.monotonic() + seconds
    while not (value := claim()):
        assert time.monotonic() < until_s, value
        time.sleep(0.02)
    return value
