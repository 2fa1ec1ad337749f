"""Whether ranks may be asked for evidence, as a collector's file says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from otel_straggler.errors import ConfigError, describe
from otel_straggler.semconv import VERBS

TOKEN_VARIABLE = "OTEL_STRAGGLER_COMMANDS_TOKEN"  # noqa: S105  a name, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsSettings:
    """Off unless switched on here and on the ranks.

    Attributes:
        enabled: whether ranks may ask at ``/v1/commands`` of the OTLP/HTTP port what is wanted of
            them, and people may ask for it at that of the metrics address.
        token: that both must show; the variable ``OTEL_STRAGGLER_COMMANDS_TOKEN`` if empty.
        on_hang: what is asked of the ranks that a stuck run waits for, and of three that wait.
        expire_seconds: a command that no rank has fetched by then is given up.
    """

    enabled: bool = False
    token: str = ""
    on_hang: tuple[str, ...] = ()
    expire_seconds: float = 120.0


def _is_token(text: str) -> bool:
    return len(text) <= 500 and all("!" <= letter <= "~" for letter in text)


RULES = {
    "token": ("letters, digits and signs of ASCII without blanks", _is_token),
    "on_hang": (f"a list of {', '.join(VERBS)}", lambda v: set(v) <= set(VERBS)),
    "expire_seconds": ("a number above 0", lambda v: v > 0),
}


def with_token(
    settings: CommandsSettings, where: str, env: Mapping[str, str] | None = None
) -> CommandsSettings:
    """The settings with the token of the environment, where they have none.

    Raises:
        ConfigError: commands are on without a token, or it cannot stand in a header.
    """
    given = settings.token or (os.environ if env is None else env).get(TOKEN_VARIABLE, "").strip()
    if settings.enabled and not (given and _is_token(given)):
        raise ConfigError(
            describe(
                where=f"{where}: commands.token",
                value="" if not given else "...",
                expected="a token of letters, digits and signs of ASCII without blanks",
                remedy=f"Set {TOKEN_VARIABLE}, for example to the output of: openssl rand -hex 32",
            )
        )
    return replace(settings, token=given)
