"""The event loop behind every server here."""

from __future__ import annotations

import asyncio
import contextlib


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    with contextlib.suppress(ImportError):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()
