"""Polls the collector for commands to this rank, and runs those on a closed list."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from otel_straggler import semconv
from otel_straggler.client.diagnostics.flight_recorder import FlightRecorder, UnavailableError
from otel_straggler.client.diagnostics.profiles import AskedProfile
from otel_straggler.client.diagnostics.stacks import Stacks
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.worker import Clock, LogOnce, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.model.flight_json import flight_record_json
from otel_straggler.model.operator_tables import MAX_STEPS
from otel_straggler.otlp.clients.client import Response, connection_options
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.secret import without_secrets
from otel_straggler.semconv import (
    COMMANDS_PER_HOUR,
    DUMP_FLIGHT_RECORD,
    DUMP_STACKS,
    MAX_PROFILED_STEPS,
    PROFILE,
    REFUSALS,
)
from otel_straggler.strict_json import parse_json

MAX_WAIT_S = 2.0
"""For one answer: whoever is asked for commands answers from memory."""
_MAX_AT_ONCE = 16
_MAX_REMEMBERED = 1_024
_MAX_ID = 64
_HOUR_S = 3_600.0
_MAX_STEP = 2**63 - 1
_ID = re.compile(rf"[A-Za-z0-9]{{1,{_MAX_ID}}}")
_LOG = logging.getLogger("otel_straggler")

Verbs = Mapping[str, Callable[["Command"], "Mapping[str, Any] | AskedProfile | None"]]
"""Functions by verb; each may return a flight record to send, or a profile that takes a while."""


class Command(NamedTuple):
    """A command of the collector; ``steps``: to profile, from ``first_step`` on."""

    id: str
    verb: str
    steps: int = 1
    first_step: int = 0

    @property
    def reason(self) -> str:
        return f"command {self.id} of the collector"


class Allowance:
    """What a rank does for a collector, however often it is asked: all limits are here. What it
    writes and sends is bounded where it is made: two files of stacks, one flight record, one table
    of operators.

    >>> allowance = Allowance(lambda: 0.0)
    >>> [allowance.why_not(Command("a", PROFILE), 0) for _ in range(5)]
    ['', '', '', '', 'limit']
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._done_at_s = {verb: deque[float](maxlen=n) for verb, n in COMMANDS_PER_HOUR.items()}

    def why_not(self, command: Command, n_profiling: int) -> str:
        """Why a command is refused, a key of ``REFUSALS``; empty if it is not, and then it counts.

        Args:
            n_profiling: profiles that have not ended.
        """
        if command.verb == PROFILE and command.steps > MAX_PROFILED_STEPS:
            return "steps"
        if command.verb == PROFILE and n_profiling:
            return "busy"
        times, now_s = self._done_at_s[command.verb], self._monotonic_s()
        if len(times) == times.maxlen and now_s - times[0] < _HOUR_S:
            return "limit"
        times.append(now_s)
        return ""


class CommandPoll:
    """Polls where heartbeats go, and nowhere else. For one thread at a time; never raises for what
    the other side says."""

    def __init__(
        self,
        settings: ClientSettings,
        session_id: Callable[[], str],
        verbs: Verbs,
        allowance: Allowance | None = None,
    ) -> None:
        self._settings = settings
        self._session_id = session_id
        self._verbs = verbs
        endpoint = settings.metrics
        options = connection_options(endpoint)
        options["headers"][semconv.COMMANDS_TOKEN_HEADER] = settings.commands_token
        options["timeout_s"] = min(endpoint.timeout_s, MAX_WAIT_S)
        self._client = HttpClient(_commands_url(endpoint.url), **options)
        self._done: OrderedDict[str, str] = OrderedDict()
        self._unreported: dict[str, str] = {}
        self._allowance = allowance or Allowance()
        self._whys: dict[str, str] = {}
        self._refused: Counter[str] = Counter()
        self._records: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._profiling: dict[str, AskedProfile] = {}
        self._profiles: dict[str, Mapping[str, Any]] = {}
        self._has_logged_refusal = False

    def poll(self) -> bool:
        """Ask, and run what is wanted; whether there is an outcome to report with the next poll."""
        self._collect_profiles()
        response = self._ask()
        if not response.is_success:
            self._log_refusal(response)
            self._drop_refused(response)
            return False
        self._has_logged_refusal = False
        self._unreported.clear()
        self._whys.clear()
        self._records.clear()
        self._profiles.clear()
        for command in _commands_in(response.body):
            if command.id not in self._done:
                self._do(command)
        return bool(self._unreported)

    def close(self) -> None:
        for profile in self._profiling.values():
            profile.give_up()
        self._client.close()

    def _collect_profiles(self) -> None:
        """Of those whose steps have ended."""
        for id_, profile in list(self._profiling.items()):
            answer = profile.answer()
            if answer is not None:
                del self._profiling[id_]
                self._profiles[id_] = answer
                outcome = "refused" if "reason" in answer else "done"
                self._done[id_] = self._unreported[id_] = outcome

    def _ask(self) -> Response:
        """With flight records, if there are any, each with its age, and profiles."""
        if not self._records and not self._profiles:
            return self._client.get(self._query())
        now_s = time.monotonic()
        records = {
            id_: {**record, "age_s": now_s - read_at_s}
            for id_, (read_at_s, record) in self._records.items()
        }
        parts = {"flight_records": records, "profiles": self._profiles}
        body = json.dumps({name: part for name, part in parts.items() if part}).encode()
        headers = {"Content-Type": "application/json"}
        return self._client.send("POST", body, query=self._query(), headers=headers)

    def _drop_refused(self, response: Response) -> None:
        """Flight records and profiles that the collector does not take are not sent again."""
        if response.status in {400, 405, 413, 415}:
            self._unreported.update(dict.fromkeys([*self._records, *self._profiles], "failed"))
            self._records.clear()
            self._profiles.clear()

    def _query(self) -> str:
        asked: dict[str, str | int] = {
            "run": self._settings.run_id,
            "group": self._settings.group,
            "rank": self._settings.rank,
            "session": self._session_id(),
            "node": self._settings.node,
        }
        if self._unreported:
            asked["done"] = ",".join(
                f"{id_}:{outcome}" for id_, outcome in self._unreported.items()
            )
        if self._whys:
            asked["why"] = ",".join(f"{id_}:{why}" for id_, why in self._whys.items())
        return urlencode(asked)

    def _do(self, command: Command) -> None:
        """Once: a command is remembered before it is run."""
        self._done[command.id] = "failed"
        while len(self._done) > _MAX_REMEMBERED:
            self._done.popitem(last=False)
        outcome = self._outcome_of(command)
        if outcome is not None:
            self._done[command.id] = self._unreported[command.id] = outcome

    def _outcome_of(self, command: Command) -> str | None:
        """None for a profile, whose outcome comes later."""
        do = self._verbs.get(command.verb)
        why = "unknown" if do is None else self._allowance.why_not(command, len(self._profiling))
        if do is None or why:
            self._refuse(command, why)
            return "refused"
        _LOG.warning("command %s of the collector: %s", command.id, command.verb)
        try:
            result = do(command)
            if isinstance(result, AskedProfile):
                self._profiling[command.id] = result
                return None
            if result is not None:
                self._records = {command.id: (time.monotonic(), result)}
        except UnavailableError:  # logged once by the recorder
            return "failed"
        except Exception as error:  # noqa: BLE001  telemetry never stops training
            _LOG.warning("command %s failed", command.id, exc_info=error)
            return "failed"
        return "done"

    def _refuse(self, command: Command, why: str) -> None:
        """Tell who asked; logged at the 1st, 10th, 100th such refusal, for a collector may ask on
        and on."""
        self._whys[command.id] = why
        self._refused[why] += 1
        count = self._refused[why]
        if count == 10 ** (len(str(count)) - 1):
            _LOG.warning(
                "command %s, %r, is refused: %s (%d so far)",
                command.id,
                command.verb,
                REFUSALS[why],
                count,
            )

    def _log_refusal(self, response: Response) -> None:
        """Once, until it works again."""
        if response.status in {401, 403} and not self._has_logged_refusal:
            self._has_logged_refusal = True
            _LOG.warning(
                "%s does not take our OTEL_STRAGGLER_COMMANDS_TOKEN (HTTP %d): this rank cannot be "
                "asked for its stacks from there",
                without_secrets(self._client.url),
                response.status,
            )


def _commands_url(metrics_url: str) -> str:
    """Next to the heartbeats.

    >>> _commands_url("http://c:4318/prefix/v1/metrics")
    'http://c:4318/prefix/v1/commands'
    """
    if metrics_url.endswith("/v1/metrics"):
        return metrics_url.removesuffix("/v1/metrics") + semconv.COMMANDS_PATH
    parts = urlsplit(metrics_url)
    return f"{parts.scheme}://{parts.netloc}{semconv.COMMANDS_PATH}"


def _commands_in(body: bytes) -> Iterator[Command]:
    """The valid commands of an answer."""
    try:
        answer: Any = parse_json(body)
    except ValueError:
        return
    wanted = answer.get("commands") if isinstance(answer, dict) else None
    for one in wanted[:_MAX_AT_ONCE] if isinstance(wanted, list) else ():
        given = one if isinstance(one, dict) else {}
        id_, verb = given.get("id"), given.get("verb")
        if isinstance(id_, str) and isinstance(verb, str) and _ID.fullmatch(id_):
            steps, first = given.get("steps", 1), given.get("first_step", 0)
            is_steps = type(steps) is int and 1 <= steps <= MAX_STEPS
            if is_steps and type(first) is int and 0 <= first <= _MAX_STEP:
                yield Command(id_, verb[:_MAX_ID], steps, first)


THREAD_NAME = "otel-straggler-evidence"


class Diagnostics:
    """Stacks and commands of this process, as far as they are switched on."""

    def __init__(self, settings: ClientSettings, is_scorer: Callable[[], bool]) -> None:
        self._settings = settings
        self._is_scorer = is_scorer
        self.stacks = _stacks(settings)
        self._poll = self._new_poll()
        self._next_poll_s = 0.0
        is_needed = self._poll is not None or (self.stacks is not None and self._check_s > 0)
        log_error = LogOnce("diagnostics could not be taken; training goes on")
        self._worker = Worker(self.tick, log_error, THREAD_NAME) if is_needed else None

    def start(self) -> None:
        if self.stacks is not None:
            self.stacks.arm(self._check_s)
        if self._worker is not None:
            self._worker.start()

    def tick(self, now_s: float) -> float:
        """Do what is due at ``now_s`` (monotonic); the time of the next tick."""
        if self.stacks is not None and self._check_s:
            self.stacks.check(self._check_s)
        if self._poll is not None and now_s >= self._next_poll_s:
            self._next_poll_s = now_s + self._settings.heartbeat_s
            if self._is_scorer() and self._poll.poll():
                self._poll.poll()  # reports the outcome; what it brings is done as well
        return now_s + (self._check_s or self._settings.heartbeat_s)

    def stop(self, timeout_s: float) -> None:
        if self._worker is not None:
            self._worker.stop(timeout_s)
        if self._poll is not None:
            self._poll.close()
        if self.stacks is not None:
            self.stacks.close()

    def leave_to_parent(self) -> None:
        if self.stacks is not None:
            self.stacks.leave_to_parent()

    @property
    def _check_s(self) -> float:
        """Seconds between two checks of the open section; 0: none."""
        after_s = self._settings.evidence_after_s
        return min(self._settings.heartbeat_s, max(after_s / 4, 0.05)) if after_s else 0.0

    def _new_poll(self) -> CommandPoll | None:
        settings = self._settings
        if not settings.commands or not settings.metrics.is_enabled:
            return None
        why = ""
        if not settings.commands_token:
            why = "OTEL_STRAGGLER_COMMANDS_TOKEN is not set"
        elif settings.metrics.protocol == "grpc":
            why = "they come over OTLP/HTTP, and this rank sends over gRPC"
        if why:
            _LOG.warning("commands are on, but not asked for: %s", why)
            return None
        recorder = FlightRecorder(settings.rank)
        verbs: dict[str, Callable[[Command], Mapping[str, Any] | AskedProfile | None]] = {
            DUMP_FLIGHT_RECORD: lambda _: flight_record_json(recorder.read()),
            PROFILE: lambda command: AskedProfile(command.first_step, command.steps, settings.rank),
        }
        stacks = self.stacks
        if stacks is not None:
            verbs[DUMP_STACKS] = lambda command: stacks.dump(command.reason)
        else:
            _LOG.info("OTEL_STRAGGLER_EVIDENCE_DIR is not set: commands for stacks are refused")
        return CommandPoll(settings, lambda: RECORDER.session.session_id, verbs)


def _stacks(settings: ClientSettings) -> Stacks | None:
    if not settings.evidence_dir:
        return None
    try:
        return Stacks(settings, RECORDER, Clock())
    except OSError as error:
        _LOG.warning("no stacks can be written to %s: %s", settings.evidence_dir, error)
        return None
