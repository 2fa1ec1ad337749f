"""Real recordings of others; they lie next to the project, not in it."""

from pathlib import Path

import pytest


def shared(name: str) -> Path:
    """A file or folder of them; skips the test where they are not there."""
    here = Path(__file__).resolve().parents[2]
    places = [up / "shared/data" / name for up in here.parents]
    result = next((each for each in places if each.exists()), None)
    if result is None:
        pytest.skip(
            f"{name} is not next to the project (../shared/data);"
            " with it this shows that recordings of others are read"
        )
    return result
