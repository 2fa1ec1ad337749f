"""The book of maintenance: which nodes are worked on, why, and until when."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_straggler.errors import InputError, describe
from otel_straggler.model.alert import Maintenance

MOST_NODES: Final = 1_000
"""Under maintenance at a time; each is a series."""
_STATE_VERSION: Final = 1


class MaintenanceBook:
    """Takes maintenance and says which nodes are under it. Thread-safe.

    Args:
        wall_ns: clock; maintenance ends by it.
    """

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._by_node: dict[str, Maintenance] = {}

    def take(self, maintenance: Maintenance) -> bool:
        """Write it down; what was said of the node before no longer counts. One that is over ends
        what there was.

        Returns:
            whether the node was under maintenance before.

        Raises:
            InputError: too many nodes are.
        """
        with self._lock:
            self._drop_over()
            was_there = self._by_node.pop(maintenance.node, None) is not None
            if maintenance.until_ns > self._wall_ns():
                if len(self._by_node) >= MOST_NODES:
                    raise InputError(_full(maintenance.node))
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
        """Go on from :meth:`state`; what has been taken since counts more.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            msg = f"version {state['version']!r}"
            raise ValueError(msg)
        book = [Maintenance(**each) for each in state["book"]][:MOST_NODES]
        with self._lock:
            self._by_node = {**{each.node: each for each in book}, **self._by_node}


def _full(node: str) -> str:
    return describe(
        where="maintenance",
        value=node,
        expected=f"at most {MOST_NODES} hosts under maintenance at a time",
        remedy="End what is over: 'otel-straggler maintenance end --node N'.",
    )
