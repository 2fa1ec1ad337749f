"""What a history has counted: each run of a section belongs to one window."""

from __future__ import annotations

from pathlib import Path

from otel_straggler.collector.history.reader import HistoryReader

Series = tuple[int, str]
"""A rank and one of its sections."""


def counted_in(history: Path, run_id: str) -> dict[Series, int]:
    """Runs in all windows, by rank and section."""
    result: dict[Series, int] = {}
    with HistoryReader(history) as reader:
        for entry in reader.windows(run_id):
            window = reader.window(entry.id)
            assert window is not None
            for line, rank in enumerate(window.ranks):
                for column, section in enumerate(window.sections):
                    series = int(rank), section.name
                    count = int(window.count[line, column])
                    result[series] = result.get(series, 0) + count
    return result


def compared(counted: dict[Series, int], recorded: dict[Series, int]) -> dict[str, int]:
    """Runs recorded and counted, those in no window, and those in two, over all series."""
    series = recorded.keys() | counted.keys()
    apart = [counted.get(each, 0) - recorded.get(each, 0) for each in series]
    return {
        "recorded": sum(recorded.values()),
        "counted": sum(counted.values()),
        "lost": -sum(min(0, count) for count in apart),
        "counted_twice": sum(max(0, count) for count in apart),
    }
