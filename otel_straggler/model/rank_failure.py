"""How a rank failed: by itself, because of another rank, or by a signal."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from otel_straggler.model.names import clean_name
from otel_straggler.secret import HIDDEN, without_secrets
from otel_straggler.strict_json import whole_number

FailureKind: TypeAlias = Literal["raised", "lost_peer", "exited", "killed"]
FAILURE_KINDS: Final[tuple[FailureKind, ...]] = get_args(FailureKind)
MAX_MESSAGE: Final = 200
_MAX_TYPE: Final = 100
_MAX_CODE: Final = 2**31 - 1
_ABORTED: Final = frozenset({"SIGABRT", "SIGTERM"})
"""Of a watchdog that lost a peer, and of a launcher that ends the rest."""
_PEER_TYPES: Final = re.compile(
    r"(DistBackendError|DistNetworkError|DistStoreError|ConnectionError|ConnectionResetError"
    r"|ConnectionAbortedError|ConnectionRefusedError|BrokenPipeError)$"
)
_PEER_MESSAGES: Final = re.compile(
    r"gloo/transport|Connection (closed|reset) by peer|Broken pipe|NCCL|ProcessGroup"
    r"|monitoredBarrier|Socket Timeout|client socket|collective operation",
    re.IGNORECASE,
)
"""Of torch's process groups and stores. Gloo with torch 2.13: ``[.../gloo/transport/tcp/pair.cc]
Connection closed by peer [127.0.0.1]:9001``; errors of NCCL come as ``DistBackendError``."""
_SPACES: Final = re.compile(r"\s+")
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SECRET: Final = re.compile(
    r"((?:pass(?:word|wd)?|secret|token|api[_-]?key|authorization)['\"]?\s*[=:]\s*"
    r"(?:bearer\s+|basic\s+)?['\"]?)[^\s'\",;)}\]]+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """
    Attributes:
        kind: an exception of its own; one that says that another rank is gone; an exit with an
            error code; a signal.
        type, message: of the exception; the message is one line, and empty where it is kept back.
        exit_code: None if unknown; negative for a signal.
    """

    kind: FailureKind
    type: str = ""
    message: str = ""
    exit_code: int | None = None

    @property
    def text(self) -> str:
        """
        >>> RankFailure(kind="raised", type="ValueError", message="bad sample 17").text
        'ValueError: bad sample 17'
        >>> RankFailure(kind="killed", exit_code=-9).text, RankFailure(kind="exited").text
        ('SIGKILL', 'an error code')
        """
        if self.type:
            return f"{self.type}: {self.message}" if self.message else self.type
        if self.exit_code is None:
            return "an error code"
        return signal_name(self.exit_code) if self.exit_code < 0 else f"exit code {self.exit_code}"

    @property
    def cause(self) -> FailureKind:
        """The kind; ``lost_peer`` also where a signal says that it followed from another rank's
        failure: SIGABRT of a watchdog, SIGTERM of a launcher."""
        is_signal = self.kind == "killed" and self.exit_code is not None
        follows = is_signal and signal_name(self.exit_code or 0) in _ABORTED
        return "lost_peer" if follows else self.kind


def signal_name(exit_code: int) -> str:
    """
    >>> signal_name(-9), signal_name(-99), signal_name(1)
    ('SIGKILL', 'signal_99', '')
    """
    if exit_code >= 0:
        return ""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal_{-exit_code}"


def exit_failure(reason: str) -> RankFailure | None:
    """An exit as launchers call it; None for one without an error.

    >>> exit_failure("SIGKILL").exit_code, exit_failure("exit_3").text, exit_failure("exit_0")
    (-9, 'exit code 3', None)
    """
    word, _, number = reason.partition("_")
    code = whole_number(number)
    if word in {"exit", "signal"} and code is not None:
        code = min(code, _MAX_CODE)
        if word == "signal":
            return RankFailure(kind="killed", exit_code=-code)
        return RankFailure(kind="exited", exit_code=code) if code else None
    if reason in signal.Signals.__members__:
        return RankFailure(kind="killed", exit_code=-signal.Signals[reason])
    return None


def exception_failure(type_: str, message: str) -> RankFailure:
    """An exception by its type, as ``package.Name``, and what ``str()`` makes of it.

    >>> exception_failure("ValueError", "bad \\n").kind
    'raised'
    >>> exception_failure("torch.distributed.DistBackendError", "").kind
    'lost_peer'
    """
    is_of_peer = _PEER_TYPES.search(type_) or _PEER_MESSAGES.search(message)
    return RankFailure(
        kind="lost_peer" if is_of_peer else "raised",
        type=clean_name(type_, _MAX_TYPE),
        message=first_line(message),
    )


def first_line(message: str) -> str:
    """The first line that is not blank, without escapes, control characters, and what looks like a
    secret, at most 200 characters.

    >>> first_line("\\n  bad \\x1b[31msample\\x1b[0m  17\\nmore")
    'bad sample 17'
    >>> first_line("GET http://me:pw@host/x?key=abc failed, token=abc, password: 'x'")
    "GET http://***@host/x?key=*** failed, token=***, password: '***'"
    """
    line = next((line for line in message.splitlines() if line.strip()), "")
    line = _SPACES.sub(" ", _ESCAPES.sub("", line[: 10 * MAX_MESSAGE])).strip()
    line = clean_name(_SECRET.sub(rf"\1{HIDDEN}", without_secrets(line)), 10 * MAX_MESSAGE)
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 3]}..."
