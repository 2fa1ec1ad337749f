"""Whatever is reported, every nanosecond of every rank is in one category."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.goodput.account import Account, StragglerLoss, account
from otel_straggler.goodput.activities import (
    ATTEMPT,
    NO_END,
    RUN,
    STEP,
    Activities,
    Activity,
)
from otel_straggler.goodput.job_events import EVENT_TYPES, JobEvent, activities_of_events
from otel_straggler.goodput.windows import timeline
from otel_straggler.semconv import BADPUT, EXCLUDED

NAMES = (STEP, STEP, STEP, ATTEMPT, RUN, EXCLUDED, "custom:a", "b", *BADPUT)
MOMENTS = st.integers(0, 60) | st.integers(0, 2**60)


@st.composite
def activities(draw: st.DrawFn) -> list[Activity]:
    """Overlaps, missing ends, ends before starts, clock steps, duplicates, empty attempts."""
    rows = draw(
        st.lists(
            st.builds(
                Activity,
                what=st.sampled_from(NAMES),
                start_ns=MOMENTS,
                end_ns=MOMENTS | st.just(NO_END),
                rank=st.integers(-1, 3),
                attempt=st.integers(0, 3),
                step=st.integers(-1, 20),
                steps=st.integers(1, 30),
            ),
            max_size=40,
        )
    )
    again = draw(st.lists(st.sampled_from(rows), max_size=5)) if rows else []
    return [*rows, *again]


def check(result: Account | None) -> None:
    if result is None:
        return
    assert (result.time_ns >= 0).all()
    assert (result.time_ns.sum(axis=1) == result.elapsed_ns).all()
    assert int(result.run_ns.sum()) == result.elapsed_ns
    for each in result.by_rank:
        assert (np.diff(each.segments.edges_ns) > 0).all()
        assert each.segments.edges_ns[0] == result.start_ns
        assert each.segments.edges_ns[-1] == result.end_ns
    line = timeline(result, 9)
    assert line.time_ns.sum(axis=1).tolist() == result.time_ns.sum(axis=0).tolist()
    assert result.steps.productive >= 0


@given(
    activities(),
    st.none() | st.floats(1e-9, 1e9),
    st.lists(st.builds(StragglerLoss, MOMENTS, MOMENTS, st.floats(0, 3)), max_size=3),
)
def test_categories_partition_the_time_of_any_activities(rows, reference_s, stragglers) -> None:
    of = Activities.of(rows)
    check(account(of, reference_step_s=reference_s, stragglers=stragglers))


@given(activities())
def test_the_order_of_delivery_and_duplicates_change_nothing(rows) -> None:
    first, second = (account(Activities.of(each)) for each in (rows, [*reversed(rows), *rows]))
    if first is None or second is None:
        assert first is second
    else:
        totals = dict(zip(second.categories, second.run_ns.tolist(), strict=True))
        assert totals == dict(zip(first.categories, first.run_ns.tolist(), strict=True))


@given(
    st.lists(
        st.builds(
            JobEvent,
            at_ns=st.integers(0, 100) | st.integers(0, 2**60),
            event_type=st.sampled_from(EVENT_TYPES),
            step=st.integers(-1, 30) | st.integers(0, 2**61),
            node_rank=st.integers(0, 3),
            duration_ns=st.integers(-1, 50) | st.integers(0, 2**60),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_categories_partition_the_time_of_any_event_log(events) -> None:
    check(account(activities_of_events(events), reference_step_s=2.0))
