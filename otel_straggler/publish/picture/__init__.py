"""What the live page and a report show of a run, as JSON: the picture and its parts.

Nothing here knows a collector: everything is made from :class:`Seen`, which a collector fills from
what it follows and a report from a history.
"""

from otel_straggler.publish.picture.picture import Maker, TimelineEnds, picture_json
from otel_straggler.publish.picture.rank import rank_json
from otel_straggler.publish.picture.runs import dearest_group, run_entry, runs_json
from otel_straggler.publish.picture.seen import Awaited, RankSigns, RankTable, Seen
from otel_straggler.publish.picture.timeline import Column, column_of, timeline_json

__all__ = [
    "Awaited",
    "Column",
    "Maker",
    "RankSigns",
    "RankTable",
    "Seen",
    "TimelineEnds",
    "column_of",
    "dearest_group",
    "picture_json",
    "rank_json",
    "run_entry",
    "runs_json",
    "timeline_json",
]
