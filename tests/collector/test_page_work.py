"""What pages ask for is made beside the event loop: once for all, and not without end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from otel_straggler.collector.api.cache import BusyError, PageWork

PATIENCE_S = 20.0


def test_what_several_ask_for_at_once_is_made_once() -> None:
    """Two hundred pages that come back after a restart are one picture; an error is told to all,
    and the next question is a new one."""
    may_end = threading.Event()
    made: list[int] = []

    def make() -> int:
        assert may_end.wait(PATIENCE_S)
        made.append(1)
        if len(made) == 1:
            raise KeyError("x")
        return len(made)

    async def ask() -> list[object]:
        work = PageWork(threads=1, maximum=1)
        asked = [asyncio.create_task(work.do("run", make)) for _ in range(200)]
        await asyncio.sleep(0)
        may_end.set()
        first = await asyncio.gather(*asked, return_exceptions=True)
        second = await work.do("run", make)
        work.close()
        return [*first, second]

    *failed, good = asyncio.run(ask())
    assert [type(error) for error in failed] == [KeyError] * 200
    assert good == 2


def test_beyond_a_limit_who_asks_is_told_to_come_back() -> None:
    """Whoever gives up takes nothing from the others, and room comes back."""
    may_end = threading.Event()

    async def ask() -> None:
        work = PageWork(threads=1, maximum=2)
        first, second = (
            asyncio.create_task(work.do(key, lambda: may_end.wait(PATIENCE_S))) for key in "ab"
        )
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="ask again"):
            await work.do("c", may_end.is_set)
        same = asyncio.create_task(work.do("a", may_end.is_set))
        await asyncio.sleep(0)
        first.cancel()
        may_end.set()
        assert await same
        assert await second
        assert await work.do("c", may_end.is_set)
        work.close()

    asyncio.run(ask())
