"""Whatever is in the newest checkpoint: the one before is restored, or a sentence says why not."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st

from otel_straggler.checkpoint import Manager, PerRank
from otel_straggler.checkpoint.folder import MANIFEST
from otel_straggler.checkpoint.stateful import RandomState
from otel_straggler.errors import InputError, UnavailableError

from ..damage import damaged
from . import forging
from .test_hostile_checkpoints import OBJECTS, PICKLES

_MAX_GROWTH_KIB = 1 << 20
DATA = "__0_0.distcp"
NUMBERS = st.one_of(st.integers(-3, 2_000), st.sampled_from([2**31, 2**62, 2**64, -(2**70)]))
KEYS = ("position.epoch", "note", "random.rank 0.numpy", "random.rank 0.python")


def state_at(step: int) -> dict[str, Any]:
    return {
        "weights": torch.full((500,), float(step)),
        "position": {"epoch": step},
        "note": ("text", step, np.arange(step)),
        "random": PerRank(RandomState()),
    }


class Place:
    """A folder with two checkpoints, of which the newest is damaged again and again."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self.folder = folder
        self.marker = folder.parent / "marker"
        self._manager = manager
        paths = [manager.save(step, state_at(step)) for step in (1, 2)]
        assert None not in paths
        self.older, self.newest = [path for path in paths if path is not None]
        self.files = {path.name: path.read_bytes() for path in self.newest.iterdir()}
        self.older_files = {path.name: path.read_bytes() for path in self.older.iterdir()}

    def reset(self) -> None:
        for path in self.newest.iterdir():
            if path.name not in self.files:
                path.unlink()
        for name, content in self.files.items():
            (self.newest / name).write_bytes(content)

    def restored(self) -> int:
        """The step; 0 if it is refused in a sentence."""
        state = state_at(0)
        refusal = ""
        try:
            step = self._manager.restore(state)
        except (InputError, UnavailableError) as error:
            refusal = str(error)
        if refusal:
            assert 20 < len(refusal) < 4_000
            return 0
        if step == 1:
            assert torch.equal(state["weights"], state_at(1)["weights"])
            assert state["position"] == {"epoch": 1}
        assert step in {1, 2}
        return int(step or 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("damaged") / "c"
    with Manager(folder, handle_sigterm=False) as manager:
        place = Place(folder, manager)
        assert place.restored() == 2
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield place
        growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert growth_kib < _MAX_GROWTH_KIB


@st.composite
def damages(draw: st.DrawFn) -> Callable[[Place], None]:
    """Of one file; half of them by somebody who writes the hashes again."""
    name = draw(st.sampled_from([".metadata", DATA, MANIFEST]))
    kind = draw(st.sampled_from(["bytes", "file of the other", "numbers", "pickle", "object"]))
    seals = draw(st.booleans()) and name != MANIFEST
    seed = draw(st.integers(0, 2**32))
    if kind == "numbers":
        return draw(numbers())
    if kind == "pickle":
        made = PICKLES[draw(st.sampled_from(sorted(PICKLES)))]
        return lambda place: forging.with_metadata(place.newest, made(place.marker))
    if kind == "object":
        return draw(objects())

    wounds = draw(damaged([bytes(range(256)) * 2]))

    def damage(place: Place) -> None:
        content = bytearray(place.files[name])
        if kind == "file of the other":
            content = bytearray(place.older_files[name])
        else:
            at = seed % len(content)
            content[at : at + seed % 7] = wounds[: seed % 11]
            del content[len(content) - seed % 3 * (seed % len(content)) // 4 :]
        (place.newest / name).write_bytes(content)
        if seals:
            forging.sealed(place.newest)

    return damage


@st.composite
def numbers(draw: st.DrawFn) -> Callable[[Place], None]:
    """Of places and sizes that the metadata states."""
    where, value = (
        draw(st.sampled_from(["offset", "length", "size", "sizes", "offsets"])),
        draw(NUMBERS),
    )

    def edit(metadata: Any) -> None:
        for stored in metadata.storage_data.values():
            if where in {"offset", "length"}:
                setattr(stored, where, value)
        tensor = metadata.state_dict_metadata["weights"]
        if where == "size":
            tensor.size = torch.Size([max(-(2**62), min(value, 2**62))])
        elif where in {"sizes", "offsets"}:
            setattr(tensor.chunks[0], where, torch.Size([max(-(2**62), min(value, 2**62))]))

    return lambda place: forging.edited_metadata(place.newest, edit)


@st.composite
def objects(draw: st.DrawFn) -> Callable[[Place], None]:
    """Of the state, as somebody else writes them, or damaged."""
    key = draw(st.sampled_from(KEYS))
    valid = [forging.torch_saved(each) for each in ({"a": [1]}, np.arange(3.0), torch.ones(2), "x")]
    if draw(st.booleans()):
        encoded = draw(damaged(valid))
        return lambda place: forging.with_object(place.newest, key, encoded)
    made = OBJECTS[draw(st.sampled_from(sorted(OBJECTS)))]
    return lambda place: forging.with_object(place.newest, key, made(place.marker))


@given(damage=damages())
def test_any_damage_is_survived_or_named(place: Place, damage: Callable[[Place], None]) -> None:
    """Nothing in it runs, and the memory does not grow; 10,000 with FUZZ_EXAMPLES=10000."""
    place.reset()
    damage(place)
    event(f"restored: {place.restored() or 'none, in a sentence'}")
    assert not place.marker.exists()
