"""The page of what is used of torch that is private or young, from ``torch_parts.py``."""

from __future__ import annotations

from described import code, table

from otel_straggler.torch_parts import FEATURES, READ, TESTED, Feature

_HEAD = """# torch versions

The tests run with torch {tested} for each push (CPU, gloo). Of {oldest} to {newest} `make
nightly` reads the files in the wheels for each name below: names of torch that begin with `_`,
and some that are young. A name that is there may still do something else; each is looked up
where it is used, and without it happens what the third column says. `otel-straggler doctor`
says what the torch that is installed lacks, without importing it.

"""


def page() -> str:
    """Markdown."""
    head = _HEAD.format(tested=" and ".join(TESTED), oldest=READ[0], newest=READ[1])
    rows = [[each.name, _since(each), each.lost, _parts(each)] for each in FEATURES]
    return head + table(["what", "since torch", "without", "of torch"], rows)


def _since(feature: Feature) -> str:
    return feature.since or f"{READ[0]} or older"


def _parts(feature: Feature) -> str:
    parts = (code(part.path) + (f" ({part.since})" if part.since else "") for part in feature.parts)
    return ", ".join(parts)
