"""Names for runs that nobody has named: readable, and unique."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Final

_ADJECTIVES: Final = re.findall(
    r"\w+",
    "amber ample azure basic bold brave brief bright brisk broad calm clear clever cool coral "
    "crisp daring deep deft eager early easy even fair fast fine firm fond fresh gentle glad "
    "golden grand green happy hardy honest jolly keen kind large light lively lucky lunar mellow "
    "merry mild neat noble plain polite proud quick quiet rapid ready royal sharp silver smooth "
    "solar solid steady",
)
_NOUNS: Final = re.findall(
    r"\w+",
    "acorn alder aspen badger beacon beaver birch bison brook canyon cedar cliff comet condor "
    "coral crane creek delta dune eagle falcon fern finch fjord forest fox gecko glacier harbor "
    "hare hawk heron ibis island jaguar juniper lagoon lark lemur lynx maple marten meadow moose "
    "ocean orchid otter owl panda pine puffin raven reef ridge river robin salmon sparrow spruce "
    "stork summit swan walrus willow",
)
_MAX_SCRIPT: Final = 40


def new_run_name(script: str = "") -> str:
    """Script (by default this process'), date, two words, and six random digits: only one process
    may make it."""
    stem = Path(script or (sys.argv[0] if sys.argv else "")).stem
    name = re.sub(r"\W+", "-", stem, flags=re.ASCII).strip("-")[:_MAX_SCRIPT]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{name or 'run'}-{date}-{words_of(os.urandom(5))}"


def words_of(digest: bytes) -> str:
    """Two words by the first two bytes, and the others as digits.

    >>> words_of(bytes([41, 46, 63, 154, 28]))
    'light-otter-3f9a1c'
    """
    adjective = _ADJECTIVES[digest[0] % len(_ADJECTIVES)]
    noun = _NOUNS[digest[1] % len(_NOUNS)]
    return f"{adjective}-{noun}-{digest[2:].hex()}"
