"""Regular expressions as pages have them: between slashes a part may match, else the whole."""

from __future__ import annotations

import re
from typing import Final

_BETWEEN_SLASHES: Final = re.compile(r"/(.*?)/([gimys]*)", re.DOTALL)


def compiled(text: str) -> re.Pattern[str]:
    """For ``search``. What is no pattern to Python matches nothing.

    >>> [bool(compiled(text).search("stuck ranks")) for text in ("stuck", "stuck.*", "/^stuck/")]
    [False, True, True]
    """
    found = _BETWEEN_SLASHES.fullmatch(text)
    flags = re.IGNORECASE if found and "i" in found[2] else 0
    try:
        return re.compile(found[1] if found else f"^(?:{text})$", flags)
    except re.error:
        return re.compile(r"(?!)")
