"""The agent of a node: one thread that accepts ranks, checks their timeouts, and acts."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from otel_straggler.agent import frames, learning
from otel_straggler.agent.beats import MAX_SECTIONS, BeatReader
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.connections import Connection, Rejections, peer_of
from otel_straggler.agent.episodes import Episode
from otel_straggler.agent.frames import VERSION, Message, ProtocolError
from otel_straggler.agent.ranks import WatchedRank
from otel_straggler.agent.timeouts_json import read_heartbeat, read_section
from otel_straggler.detect.hangs.rank_timeouts import Intervals
from otel_straggler.throttle import Places, Throttle

MAX_RANKS: Final = 1_024
MAX_VISITORS, MAX_OF_PROCESS = 256, 8
"""Connections that watch no rank: of all processes, and of one."""
INIT_S: Final = 10.0
"""For a connection to say which rank it is."""
_BUSY_S: Final = 0.05
_VISITORS_S: Final = 1.0
_MAX_ACCEPTED: Final = 64
"""Before ranks are checked again."""
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOG = logging.getLogger("otel_straggler.agent")
OnHang = Callable[[WatchedRank, dict[str, Any]], None]


class AgentServer:
    """Watches the ranks of one job on one node. For one thread.

    Args:
        listening: the socket of the node's agent.
        folder: for diagnostics.
        run_id: of the job, for names of files.
        on_hang: called for each hang, with what is known.
    """

    def __init__(
        self,
        config: FaultToleranceConfig,
        listening: socket.socket,
        folder: Path,
        run_id: str,
        on_hang: OnHang = lambda _rank, _facts: None,
    ) -> None:
        self._config, self._folder, self._run_id = config, folder, run_id
        self._on_hang = on_hang
        self._listening = listening
        listening.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._connections: set[Connection] = set()
        self._visitors = Places[Connection](MAX_VISITORS, MAX_OF_PROCESS)
        self.ranks: dict[int, WatchedRank] = {}
        self.rejections = Rejections()
        self._may_log = Throttle(1.0, burst=2.0 * MAX_RANKS)
        self._learned = learning.Learned(config.learning_rules)
        self._next_check_s = 0.0

    def step(self, timeout_s: float | None = None) -> None:
        """Wait for what comes, at most until the next check, and do what is due."""
        now_s = time.monotonic()
        wait_s = max(0.0, self._next_check_s - now_s)
        if any(one.episode is not None and not one.episode.is_done for one in self.ranks.values()):
            wait_s = min(wait_s, _BUSY_S)
        if self._visitors:
            wait_s = min(wait_s, _VISITORS_S)
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        for key, _ in self._selector.select(wait_s):
            key.data()
        self._close_silent()
        is_due = time.monotonic() >= self._next_check_s
        if is_due:
            self._next_check_s = time.monotonic() + self._config.workload_check_interval
        for watched in tuple(self.ranks.values()):
            if is_due or watched.episode is not None:
                self._check_safely(watched)

    def wake_on(self, file: int, do: Callable[[], None]) -> None:
        """Call ``do`` when there is something to read."""
        self._selector.register(file, selectors.EVENT_READ, do)

    def close(self) -> None:
        for connection in tuple(self._connections):
            self._drop(connection)
        for watched in tuple(self.ranks.values()):
            self._unwatch(watched)
        self._selector.close()
        self._listening.close()

    # --- connections -----------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                connected, _ = self._listening.accept()
            except OSError as error:
                if error.errno in _FULL:
                    self._make_room(error)
                return
            self._connect(connected)

    def _connect(self, connected: socket.socket) -> None:
        try:
            connection = Connection(connected, peer_of(connected), time.monotonic())
        except OSError:
            connected.close()
            return
        if (uid := connection.peer.uid) != os.geteuid():
            why = f"user {uid} is not the agent's user {os.geteuid()}"
            self._refuse(connection, ProtocolError("user", why))
            return
        self._connections.add(connection)
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._receive(connection))
        self._admit(connection)

    def _admit(self, connection: Connection) -> None:
        """To the places of those that watch no rank; ranks have their own."""
        gone = self._visitors.enter(connection, connection.peer.pid)
        if gone is not None:
            why = f"{MAX_VISITORS} others watch no rank either, or {MAX_OF_PROCESS} of this process"
            self._refuse(gone, ProtocolError("connections", why))

    def _make_room(self, error: OSError) -> None:
        """No descriptor is left: who watches no rank goes, the oldest first."""
        oldest = min(self._visitors, key=lambda one: one.at_s, default=None)
        if oldest is None:
            self.rejections.add(ProtocolError("full", str(error)), "a connection")
            time.sleep(_BUSY_S)  # it waits in the backlog
        else:
            self._refuse(oldest, ProtocolError("full", str(error)))

    def _receive(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        try:
            messages = connection.receive()
            for message in messages or ():
                if connection.is_open:
                    self._handle(connection, message)
        except ProtocolError as error:
            self._refuse(connection, error)
            return
        except Exception as error:  # noqa: BLE001  one peer's message ends no agent
            _LOG.debug("a message is not understood", exc_info=error)
            self._refuse(connection, ProtocolError("unexpected", repr(error)[:200]))
            return
        if messages is None:
            self._drop(connection)

    def _refuse(self, connection: Connection, error: ProtocolError) -> None:
        self.rejections.add(error, connection.peer)
        connection.send({"type": "refused", "why": str(error)[:500]})
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        """The connection ends; the rank is watched on."""
        self._visitors.leave(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self._selector.unregister(connection.socket)
        for watched in self.ranks.values():
            if watched.connection is connection:
                watched.connection = None
        connection.close()

    def _close_silent(self) -> None:
        now_s = time.monotonic()
        for connection in tuple(self._visitors):
            if now_s - connection.at_s > INIT_S:
                self._refuse(connection, ProtocolError("silent", f"no rank after {INIT_S:g} s"))

    # --- messages --------------------------------------------------------------------------------

    def _handle(self, connection: Connection, message: Message) -> None:
        kind = message["type"]
        if kind == "init":
            self._init(connection, message)
        elif kind == "watch":
            self._watch(connection, message)
        else:
            watched = self._rank_of(connection)
            if kind == "timeouts":
                self._set(watched, message)
            elif kind == "calculate":
                self._calculate(connection, watched, message)
            elif kind == "diagnosed":
                if watched.episode is not None:
                    watched.episode.diagnosed(message)
            elif kind == "bye":
                self._unwatch(watched)
            else:
                raise ProtocolError("type", f"{kind!r:.100} is no message for an agent")

    def _init(self, connection: Connection, message: Message) -> None:
        version = frames.whole(message, "version")
        if version != VERSION:
            raise ProtocolError("version", f"{version}, here it is {VERSION}: install one release")
        frames.whole(message, "rank")
        frames.whole(message, "local_rank", -1)
        frames.whole(message, "attempt")
        frames.text(message, "run_id")
        frames.text(message, "started", 20)
        connection.init = message
        connection.send(
            {
                "type": "config",
                "config": self._config.as_values(),
                "run_id": self._run_id,
                "diagnostics_dir": str(self._folder),
            }
        )

    def _watch(self, connection: Connection, message: Message) -> None:
        init = connection.init
        if init is None:
            raise ProtocolError("order", "watch before init")
        if connection not in self._visitors:
            raise ProtocolError("order", "watch, and this connection watches a rank already")
        sections = frames.texts(message, "sections", MAX_SECTIONS)
        heartbeat = read_heartbeat(message.get("heartbeat"))
        section = read_section(message.get("section"))
        has_stacks = "stacks" in message
        stacks_path = frames.text(message, "stacks", 4_096) if has_stacks else ""
        stacks_signal = frames.whole(message, "stacks_signal", 0, 64) if has_stacks else 0
        if init["rank"] not in self.ranks and len(self.ranks) >= MAX_RANKS:
            raise ProtocolError("ranks", f"{MAX_RANKS} are watched already")
        reader = BeatReader(connection.take_file(), sections)
        try:
            process = connection.open_process()
        except ProtocolError:
            reader.close()
            raise
        self._visitors.leave(connection)
        self._add(
            WatchedRank(
                rank=init["rank"],
                local_rank=init["local_rank"],
                attempt=init["attempt"],
                process=process,
                reader=reader,
                sections=sections,
                heartbeat=heartbeat,
                section=section,
                connection=connection,
                run_id=init["run_id"],
                stacks_path=stacks_path,
                stacks_signal=stacks_signal,
            )
        )
        connection.send({"type": "ok"})

    def _add(self, watched: WatchedRank) -> None:
        """In place of an earlier one: the newest connection of a rank is the rank."""
        before = self.ranks.get(watched.rank)
        if before is not None:
            is_other = before.process.is_alive and before.process.pid != watched.process.pid
            if is_other and self._may_log.passes():
                _LOG.warning("%s takes the place of %s, which still runs", watched, before)
            self._unwatch(before)
        self.ranks[watched.rank] = watched
        descriptor = watched.process.descriptor
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._exited(watched))
        if self._may_log.passes():
            _LOG.info("watching %s, attempt %d", watched, watched.attempt)

    def _rank_of(self, connection: Connection) -> WatchedRank:
        for watched in self.ranks.values():
            if watched.connection is connection:
                return watched
        raise ProtocolError("order", "a message before watch, or after bye")

    def _set(self, watched: WatchedRank, message: Message) -> None:
        if "heartbeat" in message:
            watched.heartbeat = read_heartbeat(message["heartbeat"])
        if "section" in message:
            watched.section = read_section(message["section"])

    def _calculate(self, connection: Connection, watched: WatchedRank, asked: Message) -> None:
        id_ = frames.whole(asked, "id", 0, 2**62)
        answer = self._learned.answer(watched, asked, lambda: self._intervals(watched.attempt))
        if answer is not None:
            self._set(watched, answer)
        connection.send({**(answer or {"type": "not_ready"}), "id": id_})

    def _intervals(self, attempt: int) -> list[dict[str, Intervals]]:
        """Of all ranks of the attempt; one whose page makes no sense is watched no longer, whoever
        asked."""
        result = []
        for watched in tuple(self.ranks.values()):
            if watched.attempt == attempt:
                try:
                    result.append(watched.reader.intervals())
                except ProtocolError as error:
                    self._distrust(watched, error)
        return result

    # --- checks ----------------------------------------------------------------------------------

    def _exited(self, watched: WatchedRank) -> None:
        if not watched.process.is_alive and self.ranks.get(watched.rank) is watched:
            _LOG.info("%s has ended without shutdown_workload_monitoring()", watched)
            self._unwatch(watched)

    def _unwatch(self, watched: WatchedRank) -> None:
        if self.ranks.get(watched.rank) is watched:
            del self.ranks[watched.rank]
        if watched.process.descriptor is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(watched.process.descriptor)
        connection, watched.connection = watched.connection, None
        watched.close()
        if connection is not None and connection.is_open:
            connection.at_s = time.monotonic()
            self._admit(connection)

    def _distrust(self, watched: WatchedRank, error: ProtocolError) -> None:
        self.rejections.add(error, f"the page of {watched}")
        if self._may_log.passes():
            _LOG.error("%s is watched no longer: %s", watched, error)
        self._unwatch(watched)

    def _check_safely(self, watched: WatchedRank) -> None:
        try:
            self._check(watched)
        except Exception:  # noqa: BLE001  the others are checked as well
            if self._may_log.passes():
                _LOG.exception("%s could not be checked now; it is watched on", watched)

    def _check(self, watched: WatchedRank) -> None:
        if not watched.process.is_alive:
            self._exited(watched)
            return
        try:
            if watched.reader.has_ended:
                self._unwatch(watched)
                return
            exceeded, beats = watched.overdue()
        except ProtocolError as error:
            self._distrust(watched, error)
            return
        if exceeded and watched.episode is None:
            watched.episode = Episode(watched, exceeded, self._config, self._folder, self._on_hang)
        elif exceeded and watched.episode is not None:
            watched.episode.tick(exceeded, beats)
        elif watched.episode is not None:
            _LOG.warning("%s makes progress again", watched)
            watched.episode = None
