"""What happens when a rank exceeds a timeout: diagnostics first, then what is configured."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from otel_straggler.agent import frames
from otel_straggler.agent.checkpoint_request import CheckpointRequest
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.frames import Message
from otel_straggler.agent.ranks import WatchedRank
from otel_straggler.client.diagnostics.processes import describe_state
from otel_straggler.detect.hangs.rank_timeouts import Overdue, RankBeats
from otel_straggler.regular_files import create_folder, open_regular

STACKS_S: Final = 2.0
"""For a rank to write its stacks when asked; then it is sent its signal."""
COLLECTIVE_S: Final = 5.0
SETTLE_S: Final = 0.5
"""For the signal's handler to write."""
_POLL_S: Final = 0.1
_MAX_TEXT: Final = 8_192
_LOG = logging.getLogger("otel_straggler.agent")
_ASKED, _SIGNALLED, _WRITTEN, _DONE = range(4)


class Episode:
    """One hang of one rank, from the timeout until it goes on or ends.

    Args:
        on_hang: called once, with everything known, before any signal.
    """

    def __init__(
        self,
        watched: WatchedRank,
        exceeded: list[Overdue],
        config: FaultToleranceConfig,
        folder: Path,
        on_hang: Callable[[WatchedRank, dict[str, Any]], None],
    ) -> None:
        self._watched, self._config, self._folder = watched, config, folder
        self._on_hang = on_hang
        self._began_s = time.monotonic()
        self._exceeded = exceeded
        self._checkpoint: CheckpointRequest | None = None
        if config.timeout_action == "terminate":
            self._checkpoint = CheckpointRequest(f"{watched}: {exceeded[0]}", watched.rank)
        self.facts: dict[str, Any] = {}
        self._ask()

    def _ask(self) -> None:
        """The rank itself, if it can answer."""
        watched = self._watched
        self._stage, self._due_s = _WRITTEN, self._began_s
        if watched.process.is_stopped:
            self.facts["stacks_error"] = "the process is stopped (SIGSTOP, or a debugger)"
        elif watched.connection is not None:
            watched.connection.send({"type": "diagnose", "why": str(self._exceeded[0])})
            self._stage, self._due_s = _ASKED, self._began_s + STACKS_S
        else:
            self._signal_for_stacks()

    def diagnosed(self, message: Message) -> None:
        """An answer of the rank."""
        for key in ("stacks", "stacks_error", "collective"):
            if key in message:
                self.facts[key] = frames.text(message, key, _MAX_TEXT)
        if message.get("part") == "collective":
            self._due_s = min(self._due_s, time.monotonic())
            self._stage = min(max(self._stage, _WRITTEN), _DONE)
        elif self._stage == _ASKED:
            self._stage, self._due_s = _WRITTEN, time.monotonic() + COLLECTIVE_S

    @property
    def is_done(self) -> bool:
        return self._stage == _DONE

    def tick(self, exceeded: list[Overdue], beats: RankBeats) -> None:
        """Go on as far as time allows. ``exceeded``: timeouts that the rank exceeds now."""
        if self._stage == _DONE or time.monotonic() < self._due_s:
            return
        if self._stage == _ASKED:
            self._signal_for_stacks()
        elif self._checkpoint is not None and not self._checkpoint.is_over:
            self._due_s = time.monotonic() + _POLL_S
        else:
            self._stage = _DONE
            self._act(exceeded, beats)

    def _signal_for_stacks(self) -> None:
        """The handler is in C, so the GIL does not matter."""
        watched = self._watched
        self._stage, self._due_s = _WRITTEN, time.monotonic()
        if not watched.can_write_by_signal:
            self.facts.setdefault("stacks_error", "it did not answer, and announced no signal")
            return
        try:
            watched.process.signal(watched.stacks_signal)
        except OSError as error:
            self.facts["stacks_error"] = str(error)
            return
        self.facts |= {"stacks": watched.stacks_path, "stacks_by": "signal"}
        self._stage, self._due_s = _SIGNALLED, time.monotonic() + SETTLE_S

    def _act(self, exceeded: list[Overdue], beats: RankBeats) -> None:
        action = self._config.timeout_action
        self.facts = self._record(exceeded, beats) | {"action": action}
        self._write()
        _LOG.error("%s", self.text())
        self._on_hang(self._watched, self.facts)
        if action == "terminate":
            self._send(signal.SIGCONT, self._config.rank_termination_signal)
        elif action == "signal":
            number = self._config.rank_notification_signal
            if self._watched.process.handles(number):
                self._send(number)
            else:
                _LOG.warning(
                    "%s has no handler for %s, which would end it: not sent",
                    self._watched, number.name,
                )  # fmt: skip

    def _send(self, *numbers: signal.Signals) -> None:
        try:
            for number in numbers:
                self._watched.process.signal(number)
                _LOG.warning("sent %s to %s", number.name, self._watched)
        except OSError as error:
            _LOG.warning("%s is not signalled: %s", self._watched, error)

    def _record(self, exceeded: list[Overdue], beats: RankBeats) -> dict[str, Any]:
        now_s, watched = time.monotonic(), self._watched
        opened = sorted(beats.open_s.items(), key=lambda item: item[1])
        since = beats.last_heartbeat_s
        return {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "diagnosing_s": round(now_s - self._began_s, 3),
            "rank": watched.rank,
            "local_rank": watched.local_rank,
            "attempt": watched.attempt,
            "pid": watched.process.pid,
            "reason": f"{exceeded[0].kind}_timeout",
            "exceeded": [str(one) for one in exceeded],
            "exceeded_s": round(exceeded[0].elapsed_s, 3),
            "heartbeats": beats.heartbeats,
            "last_heartbeat_s_ago": None if since is None else round(now_s - since, 3),
            "open_sections": {name: round(now_s - at_s, 3) for name, at_s in opened},
            "step": beats.step,
            "collective": "not known",
            "process": describe_state(watched.process.pid) if watched.process.is_alive else "ended",
            **self.facts,
        }

    def text(self) -> str:
        """For people, in one line."""
        facts = self.facts
        opened = ", ".join(facts["open_sections"]) or "none"
        stacks = facts.get("stacks") or f"none ({facts.get('stacks_error', 'not asked')})"
        return (
            f"RANK HANG: {self._watched}: {'; '.join(facts['exceeded'])}. Open sections: {opened}. "
            f"Step: {'unknown' if facts['step'] is None else facts['step']}. "
            f"Last collective: {facts['collective']}. Stacks: {stacks}. "
            f"Process: {facts['process']}. Action: {facts['action']}."
        )

    def _write(self) -> None:
        """A file for each episode, next to the stacks."""
        name = f"rank{self._watched.rank}-{self._watched.process.pid}-{time.time_ns()}.hang.json"
        try:
            create_folder(self._folder)
            file = open_regular(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                json.dump(self.facts, out, indent=2)
                out.write("\n")
        except OSError as error:
            _LOG.warning("diagnostics cannot be written to %s: %s", self._folder, error)
        else:
            self.facts["file"] = str(self._folder / name)
