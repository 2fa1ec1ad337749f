"""What survives a restart: states, changes of verdicts, summaries of windows, in one file."""

from otel_straggler.publish.history.codec import WindowSummary
from otel_straggler.publish.history.failures import REASONS
from otel_straggler.publish.history.file import Restored, Summary
from otel_straggler.publish.history.history import History, HistoryCounts
from otel_straggler.publish.history.reader import HistoryReader, RunEntry, WindowEntry

__all__ = [
    "REASONS",
    "History",
    "HistoryCounts",
    "HistoryReader",
    "Restored",
    "RunEntry",
    "Summary",
    "WindowEntry",
    "WindowSummary",
]
