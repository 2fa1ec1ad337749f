"""The token for a collector's metrics address: of commands, trackers, and the doctor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import read_small_text
from otel_straggler.secret import Secret

TOKEN_VARIABLE: Final = "OTEL_STRAGGLER_TOKEN_FILE"  # noqa: S105  a name, no secret
TOKEN_REMEDY: Final = f"export {TOKEN_VARIABLE}=/path/to/token   # of a grant with the role"


def token_headers(
    env: Mapping[str, str] | None = None, variable: str = TOKEN_VARIABLE
) -> dict[str, str]:
    """The header with the token in the file that the variable names; empty if it names none. The
    file is read each time, since tokens are renewed in place.

    Raises:
        ConfigError: it cannot be read.
    """
    path = (os.environ if env is None else env).get(variable, "").strip()
    if not path:
        return {}
    try:
        token = read_small_text(path, follow=True).strip()
    except (OSError, InputError) as error:
        remedy = f"Check the path and its permissions ({error})."
        raise ConfigError.of(variable, path, "a file with a token", remedy) from None
    return {"Authorization": Secret(f"Bearer {token}")}


def token_headers_or_none() -> dict[str, str]:
    """The same for a training process, which goes on without."""
    try:
        return token_headers()
    except ConfigError:
        return {}
