"""requirements-all.txt: what `pip install --require-hashes` takes is what the tests ran with."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(.*)$", re.MULTILINE)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return {plain(name): version for name, version, _ in _PIN.findall(text)}


def test_every_version_is_the_one_that_is_tested() -> None:
    """`make lock` after a change of constraints-dev.txt."""
    tested, locked = pins("constraints-dev.txt"), pins("requirements-all.txt")
    assert locked
    assert {name: tested.get(name) for name in locked} == locked


def test_every_file_has_a_hash() -> None:
    """Without one, pip refuses all."""
    text = (ROOT / "requirements-all.txt").read_text(encoding="utf-8")
    parts = re.split(r"^(?=[A-Za-z0-9._-]+==)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in part for part in parts)
    assert "://" not in text


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="no tomllib (Python 3.11): nobody compared the extras"
)
def test_every_package_of_the_extras_in_all_is_locked() -> None:
    """`make lock` after a change of pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (in_all,) = (re.findall(r"[a-z]+", each.partition("[")[2]) for each in extras["all"])
    assert set(extras) - set(in_all) == {"all", "dev", "kubernetes"}
    wanted = [
        *project["dependencies"],
        *(d for x in extras if x in in_all for d in extras[x]),
    ]
    names = {plain(re.split(r"[^A-Za-z0-9._-]", each)[0]) for each in wanted}
    assert names <= pins("requirements-all.txt").keys()
