"""Maintenance of nodes: checked, recorded, kept over restarts."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.decoding import read_as
from otel_straggler.model.json_body import JsonBody

LONGEST_S: Final = 30 * 86_400.0
_FAR_S: Final = 1e11
_REMEDY: Final = "See docs/operate/silent-and-stuck-ranks.md, 'Maintenance'."


def _until_ns(request: JsonBody, now_ns: int) -> int:
    if ("until" in request) == ("seconds" in request):
        raise request.wrong("seconds, until", None, "one of them")
    longest = f"{LONGEST_S / 86_400.0:.0f} days"
    if "seconds" in request:
        expected = f"1 to {LONGEST_S:.0f}, which is {longest}"
        return now_ns + int(request.number("seconds", 1.0, LONGEST_S, expected) * 1e9)
    expected = f"seconds since 1970, at most {longest} from now"
    maximum = min(now_ns * 1e-9 + LONGEST_S, _FAR_S)
    return int(request.number("until", 0.0, maximum, expected) * 1e9)


MAX_NODES: Final = 1_000
"""Under maintenance at a time; each is a series."""
_STATE_VERSION: Final = 1


class MaintenanceBook:
    """Which nodes are under maintenance, which ends by ``wall_ns``. Thread-safe."""

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._by_node: dict[str, Maintenance] = {}

    def announce(self, body: bytes) -> dict[str, Any]:
        """Record what a request asks for.

        Args:
            body: JSON: ``node``; its end, as ``seconds`` from now or as ``until``, seconds since
                1970; ``reason``; ``by`` if known. An end that has passed ends what there is, and
                needs no reason.

        Returns:
            what was recorded, ``is_in_force``, and ``was_in_force`` of the node before.

        Raises:
            InputError: it is not valid, or there are too many.
        """
        request = JsonBody(body, _REMEDY)
        now_ns = self._wall_ns()
        until_ns = _until_ns(request, now_ns)
        is_in_force = until_ns > now_ns
        maintenance = Maintenance(
            node=request.text("node"),
            reason=request.text("reason", None if is_in_force else ""),
            by=request.text("by", ""),
            at_ns=now_ns,
            until_ns=until_ns,
        )
        was_in_force = self.record(maintenance)
        recorded = dataclasses.asdict(maintenance)
        return {**recorded, "is_in_force": is_in_force, "was_in_force": was_in_force}

    def listed(self) -> dict[str, Any]:
        """All that is in force, by node."""
        return {"maintenance": [dataclasses.asdict(each) for each in self.in_force()]}

    def record(self, maintenance: Maintenance) -> bool:
        """Replace the maintenance of a node; one that is over ends it. Returns whether there was
        any.

        Raises:
            InputError: too many nodes are under maintenance.
        """
        with self._lock:
            self._drop_over()
            was_there = self._by_node.pop(maintenance.node, None) is not None
            if maintenance.until_ns > self._wall_ns():
                if len(self._by_node) >= MAX_NODES:
                    expected = f"at most {MAX_NODES} hosts under maintenance at a time"
                    remedy = "End what is over: 'otel-straggler maintenance end --node N'."
                    raise InputError.of("maintenance", maintenance.node, expected, remedy)
                self._by_node[maintenance.node] = maintenance
            return was_there

    def in_force(self) -> tuple[Maintenance, ...]:
        """All that is not over, by node."""
        with self._lock:
            self._drop_over()
            return tuple(self._by_node[node] for node in sorted(self._by_node))

    def _drop_over(self) -> None:
        now_ns = self._wall_ns()
        for node in [node for node, m in self._by_node.items() if m.until_ns <= now_ns]:
            del self._by_node[node]

    # --- over restarts ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON's types only."""
        book = [dataclasses.asdict(each) for each in self.in_force()]
        return {"version": _STATE_VERSION, "book": book}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`; what has been recorded since wins.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        book = read_as(list[Maintenance], state["book"])[:MAX_NODES]
        with self._lock:
            self._by_node = {**{each.node: each for each in book}, **self._by_node}
