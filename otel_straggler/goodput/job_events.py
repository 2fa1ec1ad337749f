"""Event logs of jobs, one JSON object a line, and activities: each made of the other.

The lines are those of Google's ``resiliency.goodput_measure``: ``timestamp`` (ISO 8601),
``job_name``, ``event_type``, and ``node_rank`` or ``step``. Two additions, which its calculator
ignores, state what its own events leave open: ``duration_s`` of a checkpoint, and events of type
``step_finished``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_straggler.errors import InputError
from otel_straggler.goodput.activities import ATTEMPT, NO_END, RUN, STEP, Activities, Activity
from otel_straggler.model.observation import NO_STEP

SCHEDULED: Final = "user_scheduled"
STARTED: Final = "job_started"
LOADED: Final = "checkpoint_loaded"
SAVED: Final = "checkpoint_saved"
STEP_FINISHED: Final = "step_finished"
USER_TERMINATED: Final = "user_terminated"
TERMINATED: Final = "job_terminated"
EVENT_TYPES: Final = (
    SCHEDULED, STARTED, LOADED, STEP_FINISHED, SAVED, USER_TERMINATED, TERMINATED,
)  # fmt: skip
"""In the order in which events of one moment are read."""
_OF_USER: Final = frozenset({SCHEDULED, USER_TERMINATED})
_PROGRESS: Final = frozenset({SAVED, STEP_FINISHED})
_ORDER: Final = {name: at for at, name in enumerate(EVENT_TYPES)}
_DECODER: Final = json.JSONDecoder()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH: Final = _EPOCH.replace(tzinfo=None)


class JobEvent(NamedTuple):
    """One line.

    Attributes:
        step: steps that are done, of a checkpoint or a finished step.
        node_rank: of a start or an end.
        duration_ns: of saving or loading a checkpoint, up to ``at_ns``; -1 if unknown.
    """

    at_ns: int
    event_type: str
    step: int = NO_STEP
    node_rank: int = 0
    duration_ns: int = -1
    job_name: str = ""


def parse_event_line(line: str | bytes, where: str) -> JobEvent | None:
    """Read one line; None for an event of another type.

    Args:
        where: file and line, for messages.

    Raises:
        InputError: it is no event, or a value in it makes no sense.
    """
    try:
        values = _DECODER.decode(line if isinstance(line, str) else line.decode())
        event_type = values["event_type"]
        if event_type not in _ORDER:
            return None
        seconds = values.get("duration_s")
        return JobEvent(
            _at_ns(values["timestamp"]),
            event_type,
            _number(values.get("step"), NO_STEP),
            _number(values.get("node_rank"), 0),
            -1 if seconds is None else max(0, round(seconds * 1e9)),
            sys.intern(str(values.get("job_name", ""))),
        )
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        raise InputError.of(
            where,
            text[:120].strip(),
            "a line of an event log with timestamp and event_type",
            f"({type(error).__name__}: {error})",
        ) from None


def event_line(event: JobEvent) -> str:
    """The line of an event, without its end; times in UTC, to the microsecond."""
    at = _EPOCH + timedelta(microseconds=event.at_ns // 1000)
    values: dict[str, Any] = {
        "timestamp": at.replace(tzinfo=None).isoformat(),
        "job_name": event.job_name,
        "event_type": event.event_type,
    }
    if event.event_type in {STARTED, TERMINATED}:
        values["node_rank"] = event.node_rank
    if event.step != NO_STEP:
        values["step"] = event.step
    if event.duration_ns >= 0:
        values["duration_s"] = event.duration_ns / 1e9
    return json.dumps(values)


def _at_ns(text: str) -> int:
    """A time without a zone is taken for UTC."""
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    since = at - (_NAIVE_EPOCH if at.tzinfo is None else _EPOCH)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _number(value: object, otherwise: int) -> int:
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        message = f"{value!r} is no whole number of at least 0"
        raise ValueError(message)
    return value


def in_order(events: Sequence[JobEvent]) -> list[JobEvent]:
    by_type = sorted(events, key=lambda event: _ORDER[event.event_type])
    return sorted(by_type, key=attrgetter("at_ns"))


# --- events to activities ------------------------------------------------------------------------


def activities_of_events(events: Sequence[JobEvent]) -> Activities:
    """Activities of one rank, for the whole job.

    An attempt lasts from the first ``job_started`` of several in a row to the last
    ``job_terminated``; without one, to its last event. Loading takes ``duration_s``, else all time
    since the attempt began. Saving takes ``duration_s``, else the time since the step was finished,
    else none. Steps fill the time between. What comes after the last checkpoint of an attempt that
    is followed by another is a step that is done again.
    """
    ordered = in_order(events)
    rows = [Activity(RUN, ordered[0].at_ns, ordered[-1].at_ns)] if ordered else []
    scheduled = [event.at_ns for event in ordered if event.event_type == SCHEDULED]
    parts = _attempts(ordered)
    if scheduled and parts and scheduled[0] < parts[0][0].at_ns:
        rows.append(Activity("scheduling", scheduled[0], parts[0][0].at_ns))
    for attempt, part in enumerate(parts):
        rows += _attempt_rows(part, attempt, is_last=attempt == len(parts) - 1)
    return Activities.of(rows)


def _attempts(ordered: Sequence[JobEvent]) -> list[list[JobEvent]]:
    """Events by attempt; those of the user belong to none."""
    parts: list[list[JobEvent]] = []
    for event in ordered:
        if event.event_type in _OF_USER:
            continue
        last = parts[-1][-1].event_type if parts else ""
        if not parts or (event.event_type == STARTED and last != STARTED):
            parts.append([])
        parts[-1].append(event)
    return parts


def _attempt_rows(part: Sequence[JobEvent], attempt: int, *, is_last: bool) -> Iterator[Activity]:
    start_ns, end_ns = part[0].at_ns, part[-1].at_ns
    yield Activity(ATTEMPT, start_ns, end_ns, 0, attempt)
    done, since_ns = 0, start_ns
    for event in part:
        if event.event_type == LOADED:
            length_ns = event.at_ns - since_ns if event.duration_ns < 0 else event.duration_ns
            loading_ns = event.at_ns - length_ns
            yield Activity("checkpoint_load", loading_ns, event.at_ns, 0, attempt, event.step)
            done, since_ns = max(event.step, 0), event.at_ns
        elif event.event_type in _PROGRESS:
            is_done = event.event_type == SAVED and event.step <= done
            saved_ns = event.at_ns - since_ns if is_done else 0
            if event.duration_ns >= 0:
                saved_ns = min(event.duration_ns, event.at_ns - since_ns)
            saving_ns = event.at_ns - saved_ns
            if event.step > done and saving_ns > since_ns:
                n_steps = event.step - done
                yield Activity(STEP, since_ns, saving_ns, 0, attempt, done, n_steps)
            if saved_ns:
                yield Activity("checkpoint", saving_ns, event.at_ns, 0, attempt, event.step)
            done, since_ns = max(done, event.step), event.at_ns
    if not is_last and since_ns < end_ns and since_ns > start_ns:
        yield Activity(STEP, since_ns, end_ns, 0, attempt, done)


# --- activities to events ------------------------------------------------------------------------


def events_of_activities(activities: Activities, job_name: str = "") -> list[JobEvent]:
    """Events of a run as its lowest rank saw it, in order.

    A checkpoint is of the steps that have begun before it is written; one that is loaded, of those
    before the first step of its attempt.
    """
    rank = int(activities.ranks[0])
    rows = activities.take((activities.rank == rank) | (activities.rank < 0)).rows()
    events: list[JobEvent] = []
    for attempt in sorted({row.attempt for row in rows if row.rank == rank or row.what == ATTEMPT}):
        its = [row for row in rows if row.attempt == attempt and row.what != RUN]
        events += _events_of_attempt([row for row in its if row.what != "scheduling"], job_name)
    for row in rows:
        if row.what == "scheduling":
            events.append(JobEvent(row.start_ns, SCHEDULED, job_name=job_name))
    return in_order(events)


def _events_of_attempt(rows: Sequence[Activity], job_name: str) -> Iterator[JobEvent]:
    ends = [row.start_ns if row.end_ns == NO_END else row.end_ns for row in rows]
    steps = sorted((row for row in rows if row.what == STEP), key=lambda row: row.start_ns)
    yield JobEvent(min(row.start_ns for row in rows), STARTED, job_name=job_name)
    for row, end_ns in zip(rows, ends, strict=True):
        length_ns = end_ns - row.start_ns
        if row.what == "checkpoint_load":
            step = row.step if row.step != NO_STEP else steps[0].step if steps else 0
            yield JobEvent(end_ns, LOADED, step, 0, length_ns, job_name)
        elif row.what == "checkpoint":
            step = row.step if row.step != NO_STEP else _done(steps, end_ns)
            yield JobEvent(end_ns, SAVED, step, 0, length_ns, job_name)
    yield JobEvent(max(ends), TERMINATED, job_name=job_name)


def _done(steps: Sequence[Activity], before_ns: int) -> int:
    begun = [row.step + row.steps for row in steps if row.start_ns < before_ns]
    return max(begun, default=0)
