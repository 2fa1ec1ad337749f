"""The page about the four stories sends the runs that tests look at and pictures are of."""

from __future__ import annotations

import pytest
from screenshots import LARGEST_BYTES, STORY_STEPS
from stories import STORIES, Story

from .pages import ROOT, text_of

PAGE = ROOT / "docs" / "start" / "four-faults.md"
ALL_BYTES = 1_500_000


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_each_story_has_its_command_and_its_picture(story: Story) -> None:
    """As the screenshots are made."""
    arguments = " ".join(story.arguments(STORY_STEPS))
    assert f"otel-straggler simulate {arguments} --send http://127.0.0.1:4318\n" in text_of(PAGE)
    assert f"(../images/story-{story.name}.png)" in text_of(PAGE)


def test_pictures_are_small() -> None:
    """Each by itself, and all together: they are in the repository for good."""
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs" / "images").glob("*.png")}
    assert len(sizes) > len(STORIES)
    assert max(sizes.values()) <= LARGEST_BYTES, sizes
    assert sum(sizes.values()) <= ALL_BYTES, sizes
