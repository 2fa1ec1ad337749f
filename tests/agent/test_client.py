"""``RankMonitorClient``: NVRx's verbs, with their meaning."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import fault_tolerance
from otel_straggler.agent.beats import BeatReader
from otel_straggler.agent.client import RankMonitorClient
from otel_straggler.agent.frames import RankMonitorClientError
from otel_straggler.agent.monitoring import SOCKET_VARIABLES
from otel_straggler.detect.hangs.rank_timeouts import RankBeats

from ..waiting import eventually
from .conftest import LocalAgent, MakeAgent, MakeClient

STEP = {"rank_section_timeouts": {"step": None}}


def beats_of(agent: LocalAgent, rank: int = 0) -> RankBeats:
    return agent.server.ranks[rank].reader.beats()


def test_the_import_of_nvrx_scripts_is_all_that_changes() -> None:
    assert set(fault_tolerance.__all__) >= {
        "FaultToleranceConfig",
        "RankMonitorClient",
        "RankMonitorClientError",
        "WorkloadAction",
        "WorkloadControlRequest",
    }


# --- begin and end --------------------------------------------------------------------------------


def test_before_it_is_initialized_every_verb_is_an_error() -> None:
    client = RankMonitorClient()
    for verb in (
        client.send_heartbeat,
        client.end_all_sections,
        client.calculate_and_set_hb_timeouts,
        client.calculate_and_set_section_timeouts,
        lambda: client.start_section("step"),
        lambda: client.end_section("step"),
    ):
        with pytest.raises(RankMonitorClientError, match="not initialized"):
            verb()
    client.shutdown_workload_monitoring()


def test_the_configuration_comes_from_the_agent(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    make_agent(rank_heartbeat_timeout=12.0, rank_section_timeouts={"step": 3.0})
    client = make_client(5)
    assert client.is_initialized
    assert client.rank_info is not None
    assert (client.rank_info.global_rank, client.rank_info.pid) == (5, os.getpid())
    assert client.cfg is not None
    assert client.cfg.rank_section_timeouts == {"step": 3.0}
    assert client.hb_timeouts == fault_tolerance.HeartbeatTimeouts(3_600.0, 12.0, False)
    assert client.section_timeouts == fault_tolerance.SectionTimeouts({"step": 3.0}, None)
    with pytest.raises(RankMonitorClientError, match="already initialized"):
        client.init_workload_monitoring()


def test_nvrx_name_of_the_socket_is_read_too(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent()
    monkeypatch.setenv("FT_RANK_MONITOR_IPC_SOCKET", os.environ[SOCKET_VARIABLES[0]])
    monkeypatch.delenv(SOCKET_VARIABLES[0])
    make_client(3)
    assert 3 in agent.server.ranks


def test_without_an_agent_there_is_an_error_that_names_the_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in SOCKET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RankMonitorClientError, match="OTEL_STRAGGLER_AGENT_SOCKET: got 'nothing'"):
        RankMonitorClient().init_workload_monitoring()
    monkeypatch.setattr("otel_straggler.agent.link.GONE_S", 0.0)
    monkeypatch.setenv(SOCKET_VARIABLES[0], str(tmp_path / "none.sock"))
    with pytest.raises(RankMonitorClientError, match=r"none\.sock: no connection to the agent"):
        RankMonitorClient().init_workload_monitoring()


def test_without_a_rank_there_is_an_error(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_agent()
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="the rank of this process"):
        RankMonitorClient().init_workload_monitoring()


def test_after_shutdown_the_rank_is_watched_no_longer_and_may_begin_again(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(rank_heartbeat_timeout=0.1, initial_rank_heartbeat_timeout=0.1)
    client = make_client()
    client.send_heartbeat()
    client.shutdown_workload_monitoring()
    eventually(lambda: not agent.server.ranks)
    assert not client.is_initialized
    client.init_workload_monitoring()
    assert 0 in agent.server.ranks
    client.shutdown_workload_monitoring()
    eventually(lambda: not agent.server.ranks)
    assert agent.hangs == []


def test_a_new_connection_of_a_rank_takes_the_place_of_one_that_is_still_open(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent()
    first, second = make_client(), make_client()
    first.send_heartbeat()
    assert beats_of(agent).heartbeats == 0
    second.send_heartbeat()
    assert beats_of(agent).heartbeats == 1


def test_a_forked_child_does_not_report_as_its_parent(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent()
    client = make_client()
    child = os.fork()
    if child == 0:
        try:
            client.send_heartbeat()
            os._exit(1)
        except RankMonitorClientError:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    client.send_heartbeat()
    assert beats_of(agent).heartbeats == 1
    assert client.calculate_and_set_hb_timeouts(skip_if_not_ready=True) is False


# --- heartbeats and sections ----------------------------------------------------------------------


def test_heartbeats_and_sections_are_seen_at_once(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(**STEP)
    client = make_client()
    before_s = time.monotonic()
    client.send_heartbeat()
    client.start_section("step")
    state = beats_of(agent)
    assert state.heartbeats == 1
    assert state.last_heartbeat_s is not None
    assert before_s <= state.last_heartbeat_s <= state.open_s["step"] <= time.monotonic()
    client.end_section("step")
    state = beats_of(agent)
    assert state.open_s == {}
    assert state.outside_since_s >= before_s
    assert state.has_sections


def test_a_section_that_is_open_is_not_opened_twice_nor_closed_twice(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    make_agent(**STEP)
    client = make_client()
    client.start_section("step")
    with pytest.raises(RankMonitorClientError, match="section that is open"):
        client.start_section("step")
    client.end_section("step")
    with pytest.raises(RankMonitorClientError, match="section that is not open"):
        client.end_section("step")


def test_sections_may_overlap(make_agent: MakeAgent, make_client: MakeClient) -> None:
    agent = make_agent(rank_section_timeouts={"a": None, "b": None})
    client = make_client()
    client.start_section("a")
    client.start_section("b")
    client.end_section("a")
    assert set(beats_of(agent).open_s) == {"b"}
    client.end_section("b")
    assert beats_of(agent).open_s == {}


def test_end_all_sections_ends_all_sections(make_agent: MakeAgent, make_client: MakeClient) -> None:
    """In NVRx nothing happens, and the next ``start_section`` is an error."""
    agent = make_agent(rank_section_timeouts={"a": None, "b": None})
    client = make_client()
    client.end_all_sections()
    client.start_section("a")
    client.start_section("b")
    client.end_all_sections()
    assert beats_of(agent).open_s == {}
    client.start_section("a")
    assert set(beats_of(agent).open_s) == {"a"}


def test_a_section_without_an_entry_in_the_configuration_is_ignored(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(**STEP)
    client = make_client()
    client.start_section("other")
    client.start_section("other")
    assert beats_of(agent).open_s == {}
    client.end_section("other")


def test_the_step_is_megatrons_iteration(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = SimpleNamespace(curr_iteration=None, iteration=100)
    module: Any = SimpleNamespace(_GLOBAL_ARGS=arguments)
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", module)
    agent = make_agent(**STEP)
    client = make_client(num_warmup_iters=2)
    assert beats_of(agent).is_warming_up
    arguments.curr_iteration = 101
    client.start_section("step")
    assert (beats_of(agent).step, beats_of(agent).first_step) == (101, 100)
    assert beats_of(agent).is_warming_up
    arguments.curr_iteration = 102
    client.send_heartbeat()
    assert not beats_of(agent).is_warming_up


def test_the_step_is_that_of_step_without_megatron(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from otel_straggler.agent import monitoring

    context = SimpleNamespace(step=None)
    monkeypatch.setattr(monitoring, "RECORDER", SimpleNamespace(context=context))
    agent = make_agent()
    client = make_client()
    assert beats_of(agent).step is None
    context.step = 7
    client.send_heartbeat()
    assert beats_of(agent).step == 7


# --- timeouts -------------------------------------------------------------------------------------


def test_too_little_data_is_an_error_or_false(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    make_agent(**STEP)
    client = make_client()
    client.send_heartbeat()
    with pytest.raises(RankMonitorClientError, match="Not enough data to compute timeouts"):
        client.calculate_and_set_hb_timeouts()
    assert client.calculate_and_set_hb_timeouts(skip_if_not_ready=True) is False
    with pytest.raises(RankMonitorClientError, match="Not enough data"):
        client.calculate_and_set_section_timeouts()
    assert client.calculate_and_set_section_timeouts(skip_if_not_ready=True) is False
    with pytest.raises(RankMonitorClientError, match="some of step"):
        client.calculate_and_set_section_timeouts(["stop"])


def test_all_ranks_of_a_node_get_equal_timeouts_from_the_slowest_without_waiting(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(**STEP)
    fast, slow = make_client(0), make_client(1)
    for client in (fast, slow):
        client.send_heartbeat()
        client.start_section("step")
        if client is slow:
            time.sleep(0.1)
        client.end_section("step")
        client.send_heartbeat()
    assert fast.calculate_and_set_hb_timeouts()
    time.sleep(0.1)  # the next heartbeat is late, after the first rank has asked
    slow.send_heartbeat()
    assert slow.calculate_and_set_hb_timeouts()
    assert fast.hb_timeouts == slow.hb_timeouts
    assert fast.hb_timeouts is not None
    assert fast.hb_timeouts.subsequent is not None
    assert fast.hb_timeouts.subsequent >= 0.5
    assert agent.server.ranks[0].heartbeat == agent.server.ranks[1].heartbeat == fast.hb_timeouts
    for client in (fast, slow):
        assert client.calculate_and_set_section_timeouts(["step"], calc_out_of_section=False)
    assert fast.section_timeouts == slow.section_timeouts
    assert fast.section_timeouts is not None
    assert (fast.section_timeouts.section["step"] or 0.0) >= 0.5


def test_with_an_empty_selection_only_the_time_outside_of_sections_is_learned(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    """As NVRx's example does at its end."""
    make_agent(rank_section_timeouts={"step": 9.0, "never": 8.0})
    client = make_client()
    client.start_section("step")
    client.end_section("step")
    assert client.calculate_and_set_section_timeouts([], calc_out_of_section=True)
    assert client.section_timeouts is not None
    assert client.section_timeouts.section == {"step": 9.0, "never": 8.0}
    assert client.section_timeouts.is_out_of_section_calculated


def test_the_warmup_timeout_is_no_section_to_learn(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    make_agent(rank_section_timeouts={"step": None, "warmup": 60.0})
    client = make_client()
    client.start_section("step")
    client.end_section("step")
    assert client.calculate_and_set_section_timeouts()
    assert client.section_timeouts is not None
    assert client.section_timeouts.section["warmup"] == 60.0
    assert client.section_timeouts.calculated_sections == {"step"}


def test_saved_timeouts_win_over_the_configuration_before_and_after_the_start(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(rank_heartbeat_timeout=9.0, **STEP)
    client = make_client()
    for _ in range(2):
        client.send_heartbeat()
        client.start_section("step")
        client.end_section("step")
    assert client.state_dict() == {"current_timeouts": {}}
    client.calculate_and_set_hb_timeouts()
    client.calculate_and_set_section_timeouts()
    state = client.state_dict()
    assert set(state["current_timeouts"]) == {"heartbeat", "section"}
    state["current_timeouts"]["heartbeat"]["subsequent"] = 1_234.0
    state["current_timeouts"]["section"]["section"]["step"] = 567.0
    client.load_state_dict(state)
    eventually(lambda: agent.server.ranks[0].heartbeat.subsequent == 1_234.0)
    client.shutdown_workload_monitoring()
    later = RankMonitorClient()
    later.load_state_dict(state)
    later.init_workload_monitoring()
    assert later.state_dict() == state
    assert agent.server.ranks[0].heartbeat.subsequent == 1_234.0
    assert agent.server.ranks[0].section.section["step"] == 567.0
    later.shutdown_workload_monitoring()


@pytest.mark.parametrize(
    "state",
    [
        {"current_timeouts": {"heartbeat": {"initial": "soon"}}},
        {"current_timeouts": {"section": {"section": [1]}}},
        {"current_timeouts": 5},
    ],
)
def test_a_state_that_is_none_is_an_error(state: Any) -> None:
    with pytest.raises(RankMonitorClientError, match="load_state_dict"):
        RankMonitorClient().load_state_dict(state)


def test_without_an_answer_timeouts_are_learned_from_this_rank(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(**STEP)
    client = make_client()
    client.send_heartbeat()
    client.send_heartbeat()
    agent.close()
    assert client.calculate_and_set_hb_timeouts()
    assert client.hb_timeouts is not None
    assert client.hb_timeouts.were_calculated


def test_workload_control_is_refused_with_what_to_do() -> None:
    request = fault_tolerance.WorkloadControlRequest(
        fault_tolerance.WorkloadAction.ExcludeThisNode, "a bad GPU"
    )
    with pytest.raises(RankMonitorClientError, match="Exit with an error"):
        RankMonitorClient().send_workload_control_request(request)


# --- a full or broken connection ------------------------------------------------------------------


def test_an_agent_that_comes_back_sees_the_newest_state_and_the_learned_timeouts(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent(**STEP)
    client = make_client()
    for _ in range(3):
        client.send_heartbeat()
    client.calculate_and_set_hb_timeouts()
    agent.close()
    client.send_heartbeat()
    client.start_section("step")
    again = make_agent(**STEP)
    eventually(lambda: 0 in again.server.ranks)
    assert beats_of(again).heartbeats == 4
    assert set(beats_of(again).open_s) == {"step"}
    assert again.server.ranks[0].heartbeat == client.hb_timeouts


def test_nothing_in_the_loop_waits_for_an_agent_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole loop runs while nobody reads the socket: there is nothing to wait for."""
    from otel_straggler.agent import link

    sent: list[object] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "a.sock"))
        listening.listen()
        monkeypatch.setattr(link.Link, "open", lambda self: self._watch(CONFIG))
        monkeypatch.setattr(link.Link, "send", lambda _, message: sent.append(message))
        monkeypatch.setenv(SOCKET_VARIABLES[0], str(tmp_path / "a.sock"))
        monkeypatch.setenv("RANK", "0")
        CONFIG["diagnostics_dir"] = str(tmp_path / "d")
        client = RankMonitorClient()
        client.init_workload_monitoring()
        for _ in range(10_000):
            client.send_heartbeat()
            client.start_section("step")
            client.end_section("step")
        client.end_all_sections()
        assert sent == []
        assert client._page is not None
        reader = BeatReader(os.dup(client._page.file), ["step"])
        assert reader.beats().heartbeats == 10_000
        reader.close()
        client.shutdown_workload_monitoring()


CONFIG: dict[str, Any] = {
    "config": {"rank_section_timeouts": {"step": None}},
    "run_id": "run",
    "diagnostics_dir": "",
}
