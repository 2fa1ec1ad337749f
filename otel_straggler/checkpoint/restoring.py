"""Loading the newest checkpoint that is whole, over all tiers, which all ranks find together."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_straggler.checkpoint.allowed import not_allowed
from otel_straggler.checkpoint.entries import reason_of, root_cause
from otel_straggler.checkpoint.files import problem_of
from otel_straggler.checkpoint.folder import FETCHING, Checkpoint, list_checkpoints
from otel_straggler.checkpoint.membership import Membership
from otel_straggler.checkpoint.sources import Candidate, NearestFiles, ReadTotals, candidates
from otel_straggler.checkpoint.store import Exchange
from otel_straggler.checkpoint.streams import FileAddress, FileServer
from otel_straggler.errors import InputError, StragglerError, UnavailableError

_LOG = logging.getLogger("otel_straggler")
_OF_RANK: Final = re.compile(r"rank \d+")
_Offer = tuple[list[Checkpoint], FileAddress | None]
"""What a node has, and where its files are fetched."""
_Found = tuple[list[Candidate], dict[int, FileAddress], str]
_SAME_STATE: Final = "Restore with the model and the optimizer that it was saved with."
_restored = 0


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A restore of this rank.

    Attributes:
        read: files and bytes by tier: local, peer, persistent.
        phases: (name, start and end in seconds since 1970): find, verify, read.
        is_thin: one node less, and a part of it would not be on the nodes any more.
    """

    step: int
    name: str
    read: ReadTotals = field(default_factory=ReadTotals)
    phases: tuple[tuple[str, float, float], ...] = ()
    is_thin: bool = False

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds of each phase, with the part of reading that was fetching."""
        durations = {name: end_s - start_s for name, start_s, end_s in self.phases}
        return {**durations, "fetch": self.read.fetch_s}


def restore(members: Membership, state: Any, step: int | None, timeout_s: float) -> Restored | None:
    """See :meth:`.Manager.restore`. Every rank reads its share of the files for their hashes."""
    global _restored  # noqa: PLW0603  all ranks restore in the same order
    _restored += 1
    store = members.address.under(f"restore/{_restored}").connect(timeout_s)
    exchange = Exchange(store, members.rank, members.ranks, time.monotonic() + timeout_s)
    with contextlib.ExitStack() as cleanup:
        restoring = _Restoring(members, exchange, cleanup)
        try:
            candidate = restoring.choose(step)
            if candidate is not None:
                return restoring.load(candidate, state)
            if restoring.refused:
                raise InputError(f"{members.folder}: nothing is restored. {restoring.refused}")
        except BaseException as error:
            exchange.give_up(str(error))
            raise
    if step is not None:
        raise InputError.of(
            str(members.folder), step, "the step of a complete checkpoint",
            f"List them: otel-straggler checkpoints list {members.folder}",
        )  # fmt: skip
    return None


class _Restoring:
    """One restore, on this rank.

    Args:
        cleanup: what is to be undone at its end.

    Attributes:
        refused: of one that no accepted key has signed, why; empty: there is none.
    """

    def __init__(
        self, members: Membership, exchange: Exchange, cleanup: contextlib.ExitStack
    ) -> None:
        self._members = members
        self._exchange = exchange
        self._cleanup = cleanup
        self._node = members.layout.nodes[members.rank]
        self._addresses: dict[int, FileAddress] = {}
        self._phases: list[tuple[str, float, float]] = []
        self.refused = ""

    def choose(self, step: int | None) -> Candidate | None:
        """The newest of which every file is somewhere as it was written."""
        with self._phase("find"):
            found = [each for each in self._find() if step in {None, each.step}]
        with self._phase("verify"):
            for number, candidate in enumerate(found):
                verified = self._verified(candidate, number)
                if not verified.problem:
                    return verified
                if self._members.is_first:
                    _LOG.warning("%s is not restored: %s", candidate.name, verified.problem)
        return None

    def load(self, candidate: Candidate, state: Any) -> Restored:
        members = self._members
        missing = members.trust.allowed.missing(candidate.needs)
        if missing:
            raise not_allowed(str(members.folder / candidate.name), missing)
        nearest = NearestFiles(
            candidate, self._node, self._addresses, members.local_folder, members.folder
        )
        if members.has_local and members.leads_node:
            fetched = members.local_folder / f"{FETCHING}{candidate.name}"
            self._cleanup.callback(shutil.rmtree, fetched, ignore_errors=True)
        with self._phase("read"):
            path = members.folder / candidate.name
            load(nearest, path, state, members, lambda: self._agreed("read", [], str))
            self._agreed("loaded", [], str)  # until then others fetch from here
        return Restored(
            step=candidate.step,
            name=candidate.name,
            read=nearest.totals,
            phases=tuple(self._phases),
            is_thin=candidate.copies <= members.layout.possible_replicas(members.ranks),
        )

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start_s = time.time()
        yield
        self._phases.append((name, start_s, time.time()))

    def _find(self) -> list[Candidate]:
        """As rank 0 puts them together, newest first."""
        members = self._members
        offer: _Offer = ([], None)
        if members.has_local and members.leads_node:
            offer = (list_checkpoints(members.local_folder, members.trust.keys), self._serve())
        offers = self._gathered("offer", offer, _Offer)
        found: list[Candidate] = []
        addresses: dict[int, FileAddress] = {}
        if offers is not None:
            persistent = list_checkpoints(members.folder, members.trust.keys)
            for one in filter(lambda one: one.problem, persistent):
                _LOG.warning("%s is not restored from there: %s", one.path, one.problem)
            nodes = members.layout.nodes
            on_nodes = {nodes[rank]: listed for rank, (listed, _) in offers.items() if listed}
            found = candidates(on_nodes, persistent)
            addresses = {nodes[rank]: each for rank, (_, each) in offers.items() if each}
            listed = [*persistent, *(one for each in on_nodes.values() for one in each)]
            self.refused = next((f"{x.path}: {x.problem}" for x in listed if x.is_refused), "")
        found, self._addresses, self.refused = self._scattered(
            "found", (found, addresses, self.refused), _Found
        )
        return found

    def _serve(self) -> FileAddress | None:
        members = self._members
        if len(members.layout.domains) == 1:
            return None
        server = FileServer(members.local_folder, members.address.host)
        self._cleanup.callback(server.close)
        return server.address

    def _verified(self, candidate: Candidate, number: int) -> Candidate:
        """Every node reads what it has; what no node has all ranks read from storage."""
        if candidate.problem:
            return candidate
        members = self._members
        here = [name for name, nodes in sorted(candidate.places.items()) if self._node in nodes]
        sharing = members.layout.node_ranks(members.ranks)[self._node]
        mine = here[sharing.index(members.rank) :: len(sharing)]
        bad = self._problems(candidate, members.local_folder, mine)
        on_nodes = [(self._node, *each) for each in bad]
        found = self._agreed(f"nodes/{number}", on_nodes, tuple[int, str, str])
        for node, name, problem in found if members.is_first else ():
            _LOG.warning("%s: %s of node %d %s", candidate.name, name, node, problem)
        candidate = candidate.without((node, name) for node, name, _ in found)
        missing = sorted(candidate.missing)
        if not missing or not candidate.is_persistent:
            return candidate
        mine = missing[members.rank :: members.world_size]
        bad = self._problems(candidate, members.folder, mine)
        found = self._agreed(f"storage/{number}", bad, tuple[str, str])
        for name, problem in found if members.is_first else ():
            _LOG.warning("%s: %s %s", members.folder / candidate.name, name, problem)
        return candidate.without_storage() if found else candidate

    def _problems(
        self, candidate: Candidate, folder: Path, names: list[str]
    ) -> list[tuple[str, str]]:
        """Name and problem of files that are not what was written."""
        found = [
            (name, problem_of(folder / candidate.name / name, candidate.files[name]))
            for name in names
        ]
        return [(name, problem) for name, problem in found if problem]

    def _agreed(self, name: str, listed: list[Any], kind: Any) -> list[Any]:
        """The lists of all ranks in one, on all ranks.

        Args:
            kind: of an element.
        """
        gathered = self._gathered(name, listed, list[kind])
        if gathered is not None:
            listed = [each for part in gathered.values() for each in part]
        agreed: list[Any] = self._scattered(name, listed, list[kind])
        return agreed

    def _gathered(self, name: str, content: Any, kind: Any) -> Any:
        """What all ranks say, by rank; None on others than rank 0."""
        exchange = self._exchange
        exchange.send(name, content)
        if not exchange.is_coordinator:
            return None
        return dict(zip(exchange.ranks, exchange.gather(name, kind), strict=True))

    def _scattered(self, name: str, content: Any, kind: Any) -> Any:
        """What rank 0 has, on all ranks."""
        exchange = self._exchange
        if not exchange.is_coordinator:
            return exchange.receive(name, kind)
        for rank in exchange.ranks[1:]:
            exchange.send(name, content, to=rank)
        return content


def load(
    nearest: NearestFiles,
    path: Path,
    state: Any,
    members: Membership,
    wait: Callable[[], object] = lambda: None,
) -> None:
    """Have DCP read into ``state``. Each rank reads by a plan of its own, so DCP's ranks exchange
    nothing: what they do is pickled.

    Args:
        path: for messages.
        wait: returns once all ranks have read.

    Raises:
        InputError: the checkpoint does not have what ``state`` has, is not what DCP writes, or has
            objects that are not allowed.
        UnavailableError: a file was lost after it was found, or another rank has failed.
    """
    from torch.distributed import checkpoint as dcp

    from otel_straggler.checkpoint.dcp_files import NearestReader, PlainPlanner

    content = state() if callable(state) else state
    reader = NearestReader(nearest, path, members.trust.allowed, wait)
    is_known = knows_rank(reader.read_metadata().state_dict_metadata, members.rank)
    if not is_known:
        _LOG.warning("%s has no state of its own for rank %d", path, members.rank)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.load(content, storage_reader=reader, planner=PlainPlanner(path), no_dist=True)
    except dcp.api.CheckpointException as error:
        causes = [each[0] for each in error.failures.values()]
        raise _refusal(path, causes, root_cause(error)) from error
    except StragglerError:
        raise
    except Exception as error:
        raise InputError.of(
            str(path), reason_of(error), "what load_state_dict() of the state takes", _SAME_STATE
        ) from error


def _refusal(path: Path, causes: list[BaseException], reason: str) -> StragglerError:
    """Args:
    causes: of each rank that has failed; reason: of the first.
    """
    if any(isinstance(cause, UnavailableError) for cause in causes):
        return UnavailableError(f"{path}: {reason}")
    own = next((cause for cause in causes if isinstance(cause, InputError)), None)
    return own or InputError.of(str(path), reason, "what the state to restore has", _SAME_STATE)


def knows_rank(names: Iterable[str], rank: int) -> bool:
    """Whether state of :class:`.PerRank`, if there is any, is there for this rank: not if there
    were fewer ranks, or it had died."""
    of_ranks = {part for name in names for part in name.split(".") if _OF_RANK.fullmatch(part)}
    return not of_ranks or f"rank {rank}" in of_ranks
