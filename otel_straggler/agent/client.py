"""``RankMonitorClient``: a rank's heartbeats and sections, with NVRx's verbs."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from otel_straggler.agent import learning
from otel_straggler.agent.beats import BeatPage, BeatReader
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.frames import Message, ProtocolError, RankMonitorClientError
from otel_straggler.agent.monitoring import Monitoring, RankInfo
from otel_straggler.agent.timeouts_json import (
    heartbeat_values,
    read_heartbeat,
    read_section,
    section_values,
)
from otel_straggler.detect.hangs.rank_timeouts import HeartbeatTimeouts, SectionTimeouts

_LOG = logging.getLogger("otel_straggler")


class RankMonitorClient:
    """Reports heartbeats and sections of this rank to the agent of its node, which acts if one of
    them takes too long. All verbs of a loop write to shared memory: no call waits for the agent.

    For one thread at a time. A forked child has to make a client of its own.

    Attributes:
        hb_timeouts, section_timeouts: in use; None before ``init_workload_monitoring``.
        cfg: the agent's configuration; rank_info: who this rank is; None likewise.
    """

    CURRENT_TIMEOUTS_STATE_KEY: ClassVar[str] = "current_timeouts"

    def __init__(self) -> None:
        self.is_initialized = False
        self.rank_info: RankInfo | None = None
        self.cfg: FaultToleranceConfig | None = None
        self.hb_timeouts: HeartbeatTimeouts | None = None
        self.section_timeouts: SectionTimeouts | None = None
        self.logger = logging.getLogger("RankMonitorClient")
        self._loaded: tuple[HeartbeatTimeouts | None, SectionTimeouts | None] = None, None
        self._page: BeatPage | None = None
        self._monitoring: Monitoring | None = None
        self._calculations = {"heartbeat": 0, "section": 0}
        _CLIENTS.add(self)

    # --- begin and end ---------------------------------------------------------------------------

    def init_workload_monitoring(self, num_warmup_iters: int | None = None) -> None:
        """Connect to the agent; from now on it watches this rank.

        Args:
            num_warmup_iters: instead of the configuration's ``num_warmup_iterations``.

        Raises:
            RankMonitorClientError: it was called before, the variable with the agent's socket is
                not set, or the agent does not answer.
        """
        if self.is_initialized:
            raise RankMonitorClientError("RankMonitorClient is already initialized")
        self.rank_info = RankInfo.get_for_current_rank()
        self._monitoring = Monitoring(
            self.rank_info, self._configure, self._timeouts, num_warmup_iters
        )
        self._page = self._monitoring.page
        self.is_initialized = True

    def shutdown_workload_monitoring(self) -> None:
        """End the monitoring of this rank. Safe to call twice."""
        monitoring, self._monitoring, self._page = self._monitoring, None, None
        self.is_initialized = False
        if monitoring is not None:
            monitoring.close()

    # --- in the loop -----------------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Say that this rank makes progress. Cost: less than a microsecond.

        Raises:
            RankMonitorClientError: monitoring has not begun.
        """
        if self._page is None:
            raise _not_ready()
        self._page.beat()

    def start_section(self, section: str) -> None:
        """Open a section; several may be open, nested or not. One that the configuration does not
        name is ignored.

        Raises:
            RankMonitorClientError: it is open, or monitoring has not begun.
        """
        if self._page is None:
            raise _not_ready()
        if not self._page.open(section):
            raise RankMonitorClientError.of(
                f"start_section({section!r})", "a section that is open", "one that is closed",
                "Close it first, with end_section() or end_all_sections().",
            )  # fmt: skip

    def end_section(self, section: str) -> None:
        """Close a section.

        Raises:
            RankMonitorClientError: it is not open, or monitoring has not begun.
        """
        if self._page is None:
            raise _not_ready()
        if not self._page.close(section):
            raise RankMonitorClientError.of(
                f"end_section({section!r})", "a section that is not open", "an open one",
                "Open it first, with start_section().",
            )  # fmt: skip

    def end_all_sections(self) -> None:
        """Close all open sections, if there are any.

        Raises:
            RankMonitorClientError: monitoring has not begun.
        """
        if self._page is None:
            raise _not_ready()
        self._page.close_all()

    # --- timeouts --------------------------------------------------------------------------------

    def calculate_and_set_hb_timeouts(self, skip_if_not_ready: bool = False) -> bool:
        """Learn the timeouts of heartbeats from all ranks of this node, and use them. It is no
        collective; it waits for the agent for a second at most, and then learns from this rank
        alone.

        Returns:
            False if there is not enough data and ``skip_if_not_ready``.

        Raises:
            RankMonitorClientError: monitoring has not begun; there is not enough data.
        """
        self._ensure_page()
        return self._calculate({"kind": "heartbeat"}, skip_if_not_ready)

    def calculate_and_set_section_timeouts(
        self,
        selected_sections: Collection[str] | None = None,
        calc_out_of_section: bool = True,
        skip_if_not_ready: bool = False,
    ) -> bool:
        """Learn the timeouts of sections, as ``calculate_and_set_hb_timeouts``.

        Args:
            selected_sections: None: all of the configuration; empty: none.
            calc_out_of_section: learn the timeout outside of sections, too.
        """
        page = self._ensure_page()
        if selected_sections and (unknown := set(selected_sections) - set(page.sections)):
            raise RankMonitorClientError.of(
                "selected_sections", sorted(unknown), f"some of {', '.join(page.sections)}",
                "Name them in rank_section_timeouts, null for no timeout yet.",
            )  # fmt: skip
        page.count_time_outside()
        selected = None if selected_sections is None else list(selected_sections)
        asked = {"kind": "section", "selected": selected, "out_of_section": calc_out_of_section}
        return self._calculate(asked, skip_if_not_ready)

    def state_dict(self) -> Mapping[str, Any]:
        """What was learned, for a checkpoint or a JSON file; alike on all ranks of a node."""
        state: dict[str, Any] = {}
        heartbeat, section = self.hb_timeouts, self.section_timeouts
        if heartbeat is not None and heartbeat.were_calculated and heartbeat.are_valid:
            state["heartbeat"] = heartbeat_values(heartbeat)
        if section is not None and (
            section.calculated_sections or section.is_out_of_section_calculated
        ):
            state["section"] = section_values(section)
        return {self.CURRENT_TIMEOUTS_STATE_KEY: state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Use what another job has learned, instead of what is configured; at any time.

        Raises:
            RankMonitorClientError: it is no such state.
        """
        try:
            known = state.get(self.CURRENT_TIMEOUTS_STATE_KEY, {})
            heartbeat = read_heartbeat(known["heartbeat"]) if "heartbeat" in known else None
            section = read_section(known["section"]) if "section" in known else None
        except (ProtocolError, TypeError, AttributeError) as error:
            raise RankMonitorClientError(f"load_state_dict: {error}") from error
        self._loaded = heartbeat, section
        if self.is_initialized:
            self._use_loaded()
            self._send_timeouts()

    def send_workload_control_request(self, req: object) -> None:
        """Not available: torchrun has no such requests.

        Raises:
            RankMonitorClientError: always.
        """
        raise RankMonitorClientError.of(
            "send_workload_control_request()", str(req), "a request that torchrun can take: none",
            "Exit with an error to have all ranks restarted.",
        )  # fmt: skip

    def _calculate(self, asked: Message, skip_if_not_ready: bool) -> bool:
        assert self._monitoring is not None
        kind = asked["kind"]
        self._calculations[kind] += 1
        message = {"type": "calculate", "number": self._calculations[kind], **asked}
        answer = self._monitoring.link.request(message)
        if answer is None:
            _LOG.warning("the agent does not answer: timeouts are learned from this rank alone")
            learned = self._learned_here(asked)
        else:
            learned = answer if answer["type"] == "timeouts" else None
        if learned is None:
            if skip_if_not_ready:
                return False
            raise RankMonitorClientError("Not enough data to compute timeouts.")
        self._set(learned)
        if answer is None:
            self._send_timeouts()
        return True

    def _learned_here(self, asked: Message) -> Message | None:
        assert self._page is not None
        assert self.cfg is not None
        assert self.hb_timeouts is not None
        assert self.section_timeouts is not None
        with contextlib.closing(BeatReader(os.dup(self._page.file), self._page.sections)) as reader:
            observed = [reader.intervals()]
        return learning.learned(
            asked, observed, self._page.sections, self.hb_timeouts, self.section_timeouts,
            self.cfg.learning_rules,
        )  # fmt: skip

    def _set(self, message: Message) -> None:
        if "heartbeat" in message:
            self.hb_timeouts = read_heartbeat(message["heartbeat"])
        if "section" in message:
            self.section_timeouts = read_section(message["section"])

    def _use_loaded(self) -> None:
        heartbeat, section = self._loaded
        if heartbeat is not None:
            self.hb_timeouts = heartbeat
        if section is not None and self.section_timeouts is not None:
            self.section_timeouts = self.section_timeouts.updated_by(section)

    def _send_timeouts(self) -> None:
        if self._monitoring is not None:
            self._monitoring.link.send({"type": "timeouts", **self._timeouts()})

    def _timeouts(self) -> Message:
        assert self.hb_timeouts is not None
        assert self.section_timeouts is not None
        return {
            "heartbeat": heartbeat_values(self.hb_timeouts),
            "section": section_values(self.section_timeouts),
        }

    def _ensure_page(self) -> BeatPage:
        if self._page is None:
            raise _not_ready()
        return self._page

    def _configure(self, cfg: FaultToleranceConfig) -> None:
        self.cfg = cfg
        self.hb_timeouts = HeartbeatTimeouts(
            cfg.initial_rank_heartbeat_timeout, cfg.rank_heartbeat_timeout, False
        )
        self.section_timeouts = SectionTimeouts(
            dict(cfg.rank_section_timeouts), cfg.rank_out_of_section_timeout
        )
        self._use_loaded()

    def leave_to_parent(self) -> None:
        """In a forked child: monitoring is the parent's."""
        monitoring, self._monitoring, self._page = self._monitoring, None, None
        self.is_initialized = False
        if monitoring is not None:
            monitoring.leave_to_parent()


def _not_ready() -> RankMonitorClientError:
    return RankMonitorClientError(
        "RankMonitorClient is not initialized: call init_workload_monitoring() first"
    )


_CLIENTS: Final[weakref.WeakSet[RankMonitorClient]] = weakref.WeakSet()


def _reset_in_child() -> None:
    for client in tuple(_CLIENTS):
        client.leave_to_parent()


os.register_at_fork(after_in_child=_reset_in_child)
