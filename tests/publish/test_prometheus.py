"""The text format, read back by Prometheus' own parser."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, labels

values = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85  "))


@given(texts, texts, values)
def test_any_label_and_value_survives_the_way_to_prometheus(a: str, b: str, value: float) -> None:
    """Quotes, backslashes, newlines, any script."""
    families = Families()
    families.add(semconv.SECTION_MEDIAN, labels(node=a, section=b), value)
    [family] = text_string_to_metric_families(families.render().decode())
    [sample] = family.samples
    assert sample.labels == {"node": a, "section": b}
    assert math.isclose(sample.value, value)


def test_awkward_names_are_escaped() -> None:
    """The characters that the format gives a meaning."""
    families = Families()
    families.add(semconv.RANK_STEP, labels(node='a"b\\c\nd', section="größe/前"), 1)
    assert r'node="a\"b\\c\nd",section="größe/前"' in families.render().decode()


def test_all_lines_of_a_metric_stand_together() -> None:
    """Prometheus demands it, whatever order they were added in."""
    one, two = Families(), Families()
    for families, run_id in ((one, "one"), (two, "two")):
        families.add(semconv.RANK_STEP, labels(run_id=run_id), 1)
        families.add(semconv.RUN_WORLD_SIZE, labels(run_id=run_id), 2)
    one.extend(two)
    assert len(one) == 4
    names = [line.split("{")[0] for line in one.render().decode().splitlines() if line[0] != "#"]
    assert names == ["straggler_rank_step"] * 2 + ["straggler_run_world_size"] * 2


def test_names_and_types_come_from_the_conventions() -> None:
    """Unit and kind make the suffix."""
    families = Families()
    families.add(semconv.COLLECTOR_SPANS, labels(outcome="scored"), 1)
    families.add(semconv.LAST_HEARTBEAT, labels(rank=1), 1.5)
    text = families.render().decode()
    assert "# TYPE straggler_collector_spans_total counter\n" in text
    assert 'straggler_last_heartbeat_timestamp_seconds{rank="1"} 1.5\n' in text
