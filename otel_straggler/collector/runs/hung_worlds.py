"""Worlds that hang or have failed, over restarts of the collector.

Their ranks may never report again, so all that is known of these is saved. A world that works is
not: its next report says that it does, and if none comes it is silent, and not known to hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

import numpy as np

from otel_straggler.collector.runs.hangs import NamedCulprits, WorldHangs
from otel_straggler.collector.runs.liveness import Liveness, WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.runs.run import Run, World
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LOST
from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.decoding import columns_of, plain, read_as, read_columns
from otel_straggler.model.rank import Source

_VERSION: Final = 1
_OF_SOURCE: Final = tuple(field.name for field in fields(Source))
_OF_RANK: Final = (
    *(f.name for f in fields(RankStatus) if f.name[0] != "_" and f.name != "source"),
    "_has_reported_losses",
)


@dataclass(frozen=True, slots=True)
class HungWorld:
    """One of them, as it was saved; times are of the new process' clock."""

    run_id: str
    group: str
    status: WorldStatus
    newest: HangStatus
    hangs: WorldHangs
    named: tuple[int, ...]
    given_up_at_s: float | None

    def put_into(self, run: Run, world: World) -> None:
        """As if its ranks had reported here."""
        status = self.status
        world.liveness = Liveness.restored(status)
        world.hangs, world.idle_before_s = self.hangs, self.hangs.idle_gpu_s
        world.culprits = NamedCulprits.restored(self.named)
        world.collectives.resume(self.newest.findings, status.touched_at_s)
        world.admitted_at_s = status.touched_at_s
        run.admitted_at_s = max(run.admitted_at_s, status.touched_at_s)
        run.given_up_at_s = self.given_up_at_s
        if world.claims.attempt < 0:
            at_s = {rank: its.arrived_at_s for rank, its in status.ranks.items()}
            world.claims.restore(
                {
                    "attempt": status.attempt,
                    "world_size": status.world_size,
                    "began_wall_s": status.began_at_s,
                    "ranks": np.array(list(at_s), np.int64),
                    "at_s": np.array(list(at_s.values()), np.float64),
                }
            )


def lasting(runs: Iterable[Run]) -> Iterator[tuple[Run, World]]:
    """Those of them that hang or have failed."""
    return ((run, world) for run in runs for world in run.worlds.values() if world.hangs.lasts)


def hung_state(runs: Iterable[Run], ahead_s: float) -> Callable[[], dict[str, Any]]:
    """Makes their state, of JSON's types and NumPy arrays, on any thread: it holds nothing that
    changes. Cost: O(worlds); O(ranks) when it is called.

    Args:
        ahead_s: the wall clock minus the collector's.
    """
    parts = [
        partial(
            _value,
            run_id=run.run_id,
            group=world.group,
            status=status,
            newest=newest,
            ahead_s=ahead_s,
            given_up_at_s=run.given_up_at_s,
            hangs=world.hangs.state(ahead_s),
            present=world.hangs.present(ahead_s),
            named=world.culprits.named,
        )
        for run, world in lasting(runs)
        if (status := world.liveness.status) is not None
        and (newest := world.hangs.newest) is not None
    ]
    return lambda: {"version": _VERSION, "worlds": [part() for part in parts]}


def _value(status: WorldStatus, newest: HangStatus, **others: Any) -> dict[str, Any]:
    ranks = list(status.ranks.values())
    return {
        **others,
        "newest": plain(replace(newest, before=())),
        "attempt": status.attempt,
        "began_at_s": status.began_at_s,
        "touched_at_s": status.touched_at_s,
        "world_size": status.world_size,
        "dropped": dict(status.dropped),
        "n_ranks": len(ranks),
        "ranks": columns_of(ranks, _OF_RANK),
        "sources": columns_of([its.source for its in ranks], _OF_SOURCE),
    }


def restored_worlds(
    state: Mapping[str, Any], settings: HangSettings, now_s: float
) -> list[HungWorld]:
    """From :func:`hung_state`.

    Args:
        now_s: ranks that spoke when this was saved are silent since then.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    if state["version"] != _VERSION:
        raise ValueError(f"version {state['version']!r}")
    return [_world(value, settings, now_s) for value in state["worlds"]]


def _world(value: Mapping[str, Any], settings: HangSettings, now_s: float) -> HungWorld:
    newest: HangStatus = read_as(HangStatus, value["newest"])
    hangs = WorldHangs(settings)
    hangs.restore(value["hangs"], 1)
    hangs.resume(newest, value["present"], now_s)
    ahead_s, given_up_at_s = float(value["ahead_s"]), value["given_up_at_s"]
    return HungWorld(
        run_id=read_as(str, value["run_id"]),
        group=read_as(str, value["group"]),
        status=_status(value, newest, ahead_s, now_s),
        newest=newest,
        hangs=hangs,
        named=read_as(tuple[int, ...], value["named"]),
        given_up_at_s=None if given_up_at_s is None else float(given_up_at_s) + ahead_s,
    )


def _status(
    value: Mapping[str, Any], newest: HangStatus, ahead_s: float, now_s: float
) -> WorldStatus:
    def here(at_s: Any) -> float:
        return min(float(at_s) + ahead_s, now_s)

    spoke = set(newest.ranks[newest.rank_states < LOST].tolist())
    n_ranks = read_as(int, value["n_ranks"])
    sources = [Source(**each) for each in read_columns(Source, value["sources"], n_ranks)]
    ranks = {}
    columns = read_columns(RankStatus, value["ranks"], n_ranks)
    for source, known in zip(sources, columns, strict=True):
        known["arrived_at_s"] = here(known["arrived_at_s"])
        known["delay_s"] += ahead_s
        if source.rank in spoke:
            known["awaited_at_s"] = now_s
        delay = {"_newer_delay_s": known["delay_s"], "_delay_since_s": now_s}
        ranks[source.rank] = RankStatus(source=source, **known, **delay)
    return WorldStatus(
        attempt=read_as(int, value["attempt"]),
        began_at_s=here(value["began_at_s"]),
        touched_at_s=here(value["touched_at_s"]),
        world_size=read_as(int, value["world_size"]),
        ranks=ranks,
        dropped=read_as(dict[str, int], value["dropped"]),
    )
