"""The connection of one rank to its agent while it is watched: page of beats, link, diagnostics."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_straggler.agent.beats import NO_STEP, BeatPage
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.frames import VERSION, Message, RankMonitorClientError
from otel_straggler.agent.link import Link
from otel_straggler.agent.rank_diagnostics import RankDiagnostics
from otel_straggler.client import process
from otel_straggler.client.diagnostics.processes import started_ticks
from otel_straggler.client.identity import detect_rank_numbers, explain_run_id
from otel_straggler.client.recording import RECORDER
from otel_straggler.strict_json import whole_number

SOCKET_VARIABLES: Final = ("OTEL_STRAGGLER_AGENT_SOCKET", "FT_RANK_MONITOR_IPC_SOCKET")
_MEGATRON: Final = "megatron.training.global_vars"
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True)
class RankInfo:
    """Who a rank is."""

    global_rank: int
    local_rank: int
    host: str
    pid: int

    @classmethod
    def get_for_current_rank(cls) -> RankInfo:
        """By ``torch.distributed``, else by the launcher's variables.

        Raises:
            RankMonitorClientError: neither knows.
        """
        distributed = sys.modules.get("torch.distributed")
        text: Any = os.environ.get("RANK", "")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            text = str(distributed.get_rank())
        rank = whole_number(text)
        if rank is None:
            raise RankMonitorClientError.of(
                "RANK", text, "the rank of this process", "Start it with otel-straggler run."
            )
        local_rank = whole_number(os.environ.get("LOCAL_RANK", ""))
        local_rank = -1 if local_rank is None else local_rank
        return cls(rank, local_rank, socket.gethostname(), os.getpid())


class Monitoring:
    """Begins when it is made, which waits for the agent.

    Args:
        on_config: gets the configuration of the first agent, before the page is made.
        timeouts: in use now, as fields of a message.
        warmup_steps: instead of the configuration's.

    Attributes:
        page: where the rank writes its heartbeats and sections.

    Raises:
        RankMonitorClientError: no agent is named, or it does not answer.
    """

    page: BeatPage

    def __init__(
        self,
        rank: RankInfo,
        on_config: Callable[[FaultToleranceConfig], None],
        timeouts: Callable[[], Message],
        warmup_steps: int | None,
    ) -> None:
        path = next(filter(None, map(os.environ.get, SOCKET_VARIABLES)), "")
        if not path:
            raise RankMonitorClientError.of(
                SOCKET_VARIABLES[0],
                "nothing",
                "the socket of the node's agent",
                "Start the ranks with otel-straggler run and --ft-param-* or --ft-cfg-path.",
            )
        self._rank, self._on_config, self._timeouts = rank, on_config, timeouts
        self._warmup_steps = warmup_steps
        self._diagnostics: RankDiagnostics | None = None
        self._has_begun = False
        self.link = Link(path, self._hello, self._watch, self._diagnose)
        try:
            self.link.open()
        except RankMonitorClientError:
            self._release()
            raise

    def close(self) -> None:
        """Say that this rank is watched no longer."""
        self.link.send({"type": "bye"})
        self.link.close()
        self._release()

    def leave_to_parent(self) -> None:
        """In a forked child: page, connection and files are the parent's."""
        self.link.leave_to_parent()
        if self._diagnostics is not None:
            self._diagnostics.leave_to_parent()

    def _release(self) -> None:
        if self._has_begun:
            self.page.end()
        if self._diagnostics is not None:
            self._diagnostics.close()

    # --- in the link's thread --------------------------------------------------------------------

    def _hello(self) -> Message:
        return {
            "type": "init",
            "version": VERSION,
            "rank": self._rank.global_rank,
            "local_rank": self._rank.local_rank,
            "attempt": detect_rank_numbers(os.environ)["attempt"].value or 0,
            "run_id": _run_id()[:300],
            "started": started_ticks(os.getpid()),
        }

    def _watch(self, config: Message) -> tuple[Message, int]:
        """The page, made when the first agent has said which sections there are."""
        if not self._has_begun:
            self._begin(config)
        message = {"type": "watch", "sections": list(self.page.sections), **self._timeouts()}
        if self._diagnostics is not None:
            message |= self._diagnostics.describe()
        return message, self.page.file

    def _begin(self, config: Message) -> None:
        cfg = FaultToleranceConfig(**config["config"])
        self._on_config(cfg)
        warmup = self._warmup_steps
        warmup = cfg.num_warmup_iterations if warmup is None else warmup
        self.page = BeatPage(list(cfg.rank_section_timeouts), warmup, current_step)
        self._has_begun = True
        folder = Path(config["diagnostics_dir"])
        try:
            self._diagnostics = RankDiagnostics(
                folder,
                run_id=config["run_id"],
                rank=self._rank.global_rank,
                node=self._rank.host,
                place=self._place,
            )
        except OSError as error:
            _LOG.warning("no stacks can be written to %s: %s", folder, error)

    def _place(self) -> Message:
        step = current_step()
        return {"step": None if step == NO_STEP else step, "open": list(self.page.open_sections)}

    def _diagnose(self, message: Message) -> Iterable[Message]:
        return () if self._diagnostics is None else self._diagnostics.answers(message)


def _run_id() -> str:
    """Of the session, else of the environment; empty if it has no name yet."""
    settings = process.current()
    if settings is not None:
        return settings.run_id
    named = os.environ.get("OTEL_STRAGGLER_RUN_ID", "").strip()
    return named or explain_run_id(os.environ)[0]


def current_step() -> int:
    """The step of this process: Megatron's iteration, or that of ``step()``."""
    megatron = sys.modules.get(_MEGATRON)
    if megatron is not None:
        arguments = getattr(megatron, "_GLOBAL_ARGS", None)
        iteration = getattr(arguments, "curr_iteration", None)
        if iteration is None:
            iteration = getattr(arguments, "iteration", None)
        if type(iteration) is int and iteration >= 0:
            return iteration
    context = RECORDER.context
    return NO_STEP if context is None or context.step is None else context.step
