"""How this process fails: for the last heartbeat, and for torchelastic's error file.

torchelastic orders the failures of ranks by when their processes are seen to end, unless they leave
an error file: the interpreter of the rank that raised ends last, after destructors and the last
telemetry, and those that lost their peer meanwhile abort at once.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_straggler.model.rank_failure import RankFailure, exception_failure
from otel_straggler.regular_files import open_regular

_LOG = logging.getLogger("otel_straggler")
ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
OWN_KEY: Final = "otel_straggler"
"""In ``extraInfo`` of the error file: what torch's own does not say."""
_MAX_CHAIN: Final = 10


def failure_of(error: BaseException | None, exit_code: object = None) -> RankFailure | None:
    """How a process fails that ends by this exception, or with the code of ``sys.exit()``; None if
    neither says so.

    An exception that was raised while that of a lost peer was handled follows from it.

    >>> failure_of(ValueError("bad sample 17")).text
    'ValueError: bad sample 17'
    >>> failure_of(None, 3).text, failure_of(None, "no data left").text, failure_of(None, 0)
    ('exit code 3', 'exit code 1', None)
    """
    if isinstance(error, SystemExit):
        code = error.code
        return failure_of(None if code in {None, 0} else error.__context__, code)
    if error is None or isinstance(error, KeyboardInterrupt):
        if exit_code in {None, 0}:
            return None
        number = exit_code if isinstance(exit_code, int) else 1
        return RankFailure(kind="exited", exit_code=number & 0xFF)
    chain = [exception_failure(type_name(each), _text(each)) for each in _chain(error)]
    of_peer = next((each for each in chain if each.kind == "lost_peer"), None)
    return of_peer or chain[0]


def type_name(error: BaseException) -> str:
    """
    >>> type_name(ValueError()), type_name(json.JSONDecodeError("", "", 0))
    ('ValueError', 'json.decoder.JSONDecodeError')
    """
    kind = type(error)
    is_plain = kind.__module__ in {"builtins", "__main__"}
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def write_error_file(error: BaseException, env: Mapping[str, str] | None = None) -> None:
    """Leave the exception for torchelastic, as its ``record`` does, unless that has; nothing where
    no launcher asks for it. Never raises."""
    path = (os.environ if env is None else env).get(ERROR_FILE, "")
    if not path or isinstance(error, SystemExit | KeyboardInterrupt) or os.path.exists(path):  # noqa: PTH110
        return
    try:
        opened = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(opened, "w", encoding="utf-8", errors="replace") as file:
            json.dump(_error_file(error), file)
    except OSError as failure:
        _LOG.info("otel-straggler: no error file for torchelastic: %s", failure)


def _error_file(error: BaseException) -> dict[str, Any]:
    failure = failure_of(error)
    now_s = time.time()
    own = {"at_unix_s": now_s, "kind": "raised" if failure is None else failure.kind}
    return {
        "message": {
            "message": f"{type(error).__name__}: {_text(error)}",
            "extraInfo": {
                "py_callstack": "".join(
                    traceback.format_exception(type(error), error, error.__traceback__)
                ),
                "timestamp": str(int(now_s)),
                OWN_KEY: own,
            },
        }
    }


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or in handling of."""
    following: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        if following is None:
            return
        yield following
        suppressed = following.__suppress_context__
        following = following.__cause__ or (None if suppressed else following.__context__)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  of the user's own
        return ""
