"""Saves and loads of DCP are sections, with nothing of DCP changed."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import configure, phase, shutdown
from otel_straggler.client.checkpoints import CheckpointWatch, record_past
from otel_straggler.client.recorder import Record
from otel_straggler.client.recording import RECORDER, RECORDING, Inbox
from otel_straggler.testing import CapturedRequests

torch = pytest.importorskip("torch", reason="no torch: it would show that DCP is timed")
dcp = pytest.importorskip("torch.distributed.checkpoint")
dcp_logger = pytest.importorskip("torch.distributed.checkpoint.logger")


@pytest.fixture
def watch() -> Iterator[CheckpointWatch]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        watch = CheckpointWatch()
        watch.start()
        yield watch
        watch.close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox(RECORDING)
    yield inbox
    inbox.close()


def records(inbox: Inbox) -> list[Record]:
    return [record for batch in inbox.drain() for record in batch]


def names(found: list[Record]) -> list[str]:
    return [record[0][0].name for record in found]


def state() -> dict[str, Any]:
    return {"weights": torch.ones(1_000)}


def test_a_save_is_a_phase_with_plan_write_and_commit(
    tmp_path: Path, watch: CheckpointWatch, inbox: Inbox
) -> None:
    """A user's own call, as it is."""
    dcp.save(state(), checkpoint_id=tmp_path)
    found = records(inbox)
    assert names(found) == [
        "checkpoint_stage", "checkpoint_plan", "checkpoint_plan", "checkpoint_write",
        "checkpoint_commit", "checkpoint",
    ]  # fmt: skip
    assert {record[0][0].kind for record in found} == {"checkpoint"}
    assert found[3][1] is not None
    assert found[3][1][0].name == "checkpoint"
    assert watch.totals.saves == 1
    assert watch.totals.size_bytes >= 4_000
    assert watch.totals.blocking_s > 0.0


def test_a_load_is_a_phase_with_plan_and_read(
    tmp_path: Path, watch: CheckpointWatch, inbox: Inbox
) -> None:
    dcp.save(state(), checkpoint_id=tmp_path)
    records(inbox)
    dcp.load(state(), checkpoint_id=tmp_path)
    found = names(records(inbox))
    assert found == ["checkpoint_plan", "checkpoint_plan", "checkpoint_read", "checkpoint"]
    assert watch.totals.loads == 1


def test_an_asynchronous_save_blocks_while_it_stages(
    tmp_path: Path, watch: CheckpointWatch, inbox: Inbox
) -> None:
    """What its thread does is in no phase: the training goes on."""
    has_returned = threading.Event()

    class LateWriter(dcp.FileSystemWriter):  # type: ignore[misc]
        def prepare_local_plan(self, plan: Any) -> Any:
            has_returned.wait(60.0)
            return super().prepare_local_plan(plan)

    saving = dcp.async_save(state(), storage_writer=LateWriter(tmp_path))
    has_returned.set()
    saving.result()
    found = records(inbox)
    by_name = {record[0][0].name: record for record in reversed(found)}
    assert by_name["checkpoint_stage"][1][0].name == "checkpoint"
    assert by_name["checkpoint_write"][1][0].name == "checkpoint_save"
    assert by_name["checkpoint_write"][0][3].phase == ""


def test_a_save_that_fails_leaves_no_section_open(
    tmp_path: Path, watch: CheckpointWatch, inbox: Inbox
) -> None:
    """DCP does not log that its phases have ended then."""
    (tmp_path / "file").touch()
    with pytest.raises(dcp.api.CheckpointException):
        dcp.save(state(), checkpoint_id=tmp_path / "file" / "below")
    assert names(records(inbox))[-1] == "checkpoint"
    assert RECORDER.open_here() == []
    assert RECORDER.context is not None
    assert RECORDER.context.phase == ""
    assert watch.totals.failures == 1


def test_a_trainers_phase_is_not_begun_twice(
    tmp_path: Path, watch: CheckpointWatch, inbox: Inbox
) -> None:
    with phase("checkpoint"):
        dcp.save(state(), checkpoint_id=tmp_path)
    assert names(records(inbox))[-2:] == ["checkpoint_save", "checkpoint"]


def test_a_session_watches_and_its_end_leaves_dcp_as_it_was(tmp_path: Path) -> None:
    handlers, saved = list(dcp_logger._dcp_logger.handlers), dcp.save
    with CapturedRequests() as requests:
        configure(endpoint=requests.url, strict=True)
        assert len(dcp_logger._dcp_logger.handlers) == len(handlers) + 1
        shutdown()
    assert dcp_logger._dcp_logger.handlers == handlers
    assert dcp.save is saved


def test_two_watches_time_once(tmp_path: Path, watch: CheckpointWatch, inbox: Inbox) -> None:
    other = CheckpointWatch()
    other.start()
    dcp.save(state(), checkpoint_id=tmp_path)
    other.close()
    assert names(records(inbox)).count("checkpoint_write") == 1


def test_what_another_process_has_written_is_recorded_with_its_times(inbox: Inbox) -> None:
    """Outside of all steps."""
    record_past("checkpoint_write", 100.0, 102.5)
    ((frame, around, end_ns, error, _),) = records(inbox)
    assert (frame[0].name, frame[0].kind) == ("checkpoint_write", "checkpoint")
    assert end_ns - frame[2] == 2_500_000_000
    assert (frame[3].step, around, error) == (None, None, None)


def test_a_message_that_is_not_dcps_is_none_of_ours(watch: CheckpointWatch) -> None:
    logger = dcp_logger._dcp_logger
    assert isinstance(logger, logging.Logger)
    logger.debug("a text")
    logger.debug({"func_name": "save", "event": "end", "uuid": "never begun"})
    assert watch.totals.saves == 0
