"""``propagate_context``: spans that user code starts inside a section become its children."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Generator, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from otel_straggler import flush, phase, section, shutdown, step
from otel_straggler.client.propagation import PropagatedRun
from otel_straggler.client.recording import SectionTimer
from otel_straggler.client.sections import Section
from otel_straggler.client.sender import SDK_RATE
from otel_straggler.otlp.ids import step_trace_id
from otel_straggler.testing import CapturedRequests

from .conftest import Application, MakeApplication
from .test_sampler import Asked

EARLY = section("made before configure()")
PLAIN = {name: getattr(SectionTimer, name) for name in ("__enter__", "__exit__", "begin")}


@pytest.fixture(autouse=True)
def _result_as_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each test the context is as before, OpenTelemetry has logged nothing, and the section
    class has its plain methods again."""
    before = otel_context.get_current()
    yield
    assert otel_context.get_current() is before
    assert [r.getMessage() for r in caplog.records if r.name.startswith("opentelemetry")] == []
    shutdown()
    assert {name: getattr(SectionTimer, name) for name in PLAIN} == PLAIN


@pytest.fixture
def application(make_application: MakeApplication) -> Application:
    made = make_application()
    made.configure(propagate_context=True, sdk_spans_per_s=100_000)
    return made


def tree(application: Application) -> dict[str, str | None]:
    """Name -> name of the parent, "" if that was never exported."""
    assert flush()
    spans = application.spans()
    names = {span.context.span_id: span.name for span in spans}
    assert len(names) == len(spans)
    for span in spans:
        assert span.parent is None or span.parent.trace_id == span.context.trace_id
    return {s.name: names.get(s.parent.span_id, "") if s.parent else None for s in spans}


def current() -> trace.SpanContext:
    return trace.get_current_span().get_span_context()


def user(application: Application, name: str) -> Any:
    return application.tracer.start_as_current_span(name)


def test_user_spans_become_children_of_the_section_they_start_in(
    application: Application,
) -> None:
    """With the section's trace, which is that of the step."""
    with step(3), EARLY:
        with user(application, "in early"), user(application, "deeper"):
            pass
        with section("inner").run(tokens=1), user(application, "in inner"):
            pass
        with user(application, "after inner"):
            pass
    assert tree(application) == {
        "step": None,
        EARLY.name: "step",
        "in early": EARLY.name,
        "deeper": "in early",
        "inner": EARLY.name,
        "in inner": "inner",
        "after inner": EARLY.name,
    }
    traces = {span.context.trace_id for span in application.spans()}
    assert traces == {int(step_trace_id("run", 0, "", 3).hex(), 16)}


def test_a_section_inside_a_user_span_inside_a_section_is_its_child(
    application: Application,
) -> None:
    """In the application's tracing the tree is what the code says."""
    with step(1), section("outer"), user(application, "user"), section("inner"):
        pass
    assert tree(application) == {"step": None, "outer": "step", "user": "outer", "inner": "user"}


def test_on_the_wire_parents_stay_sections(
    make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """A collector never sees the user's spans, so it must not need them."""
    made = make_application()
    made.configure(propagate_context=True, endpoint=sink.url)
    with step(1), section("outer"), user(made, "user"), section("inner"):
        pass
    assert flush()
    spans = {span.name: span for span in sink.spans()}
    assert spans["inner"].parent_id == spans["outer"].span_id
    ours = {s.name: f"{s.context.span_id:016x}" for s in made.ours()}
    assert ours == {name: span.span_id.hex() for name, span in spans.items()}


def test_without_a_step_sections_and_user_spans_share_a_trace(application: Application) -> None:
    """A root of its own, linked to what was current around it."""
    with user(application, "around"), section("lone"):
        with user(application, "in lone"):
            pass
        with section("inner"), user(application, "in inner"):
            pass
    assert tree(application) == {
        "around": None,
        "lone": None,
        "in lone": "lone",
        "inner": "lone",
        "in inner": "inner",
    }
    spans = application.by_name()
    assert [link.context for link in spans["lone"].links] == [spans["around"].context]
    assert spans["inner"].links == ()


def test_the_step_span_is_linked_to_the_span_around_it(application: Application) -> None:
    """The way from the application's trace to that of the step."""
    with user(application, "train"), step(1), section("a"):
        pass
    with step(2), section("a"):
        pass
    assert flush()
    train = application.by_name()["train"]
    steps = [span for span in application.ours() if span.name == "step"]
    assert [[link.context for link in span.links] for span in steps] == [[train.context], []]


def test_between_sections_the_current_span_is_the_users(application: Application) -> None:
    """A step alone is not propagated: it may end in another place than it began in."""
    with user(application, "train") as train, step(1):
        assert trace.get_current_span() is train
        with section("a"):
            assert trace.get_current_span() is not train
            assert not trace.get_current_span().is_recording()
        assert trace.get_current_span() is train


def test_phases_and_decorated_functions_are_propagated_too(application: Application) -> None:
    """All that is timed."""

    @section("decorated")
    def work() -> None:
        with user(application, "in decorated"):
            pass

    with phase("eval"), user(application, "in eval"):
        pass
    work()
    assert tree(application) == {
        "eval": None,
        "in eval": "eval",
        "decorated": None,
        "in decorated": "decorated",
    }


def test_every_thread_has_its_own_current_section(application: Application) -> None:
    """As with OpenTelemetry's own spans, a new thread begins with nothing current."""
    seen: list[bool] = []

    def in_thread() -> None:
        seen.append(current().is_valid)
        with section("threaded"), user(application, "in thread"):
            pass
        seen.append(current().is_valid)

    with step(1), section("outer"):
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    assert seen == [False, False]
    assert tree(application) == {
        "step": None,
        "outer": "step",
        "threaded": "step",
        "in thread": "threaded",
    }


def test_coroutines_that_interleave_keep_their_own_current_section(
    application: Application,
) -> None:
    """Each task sees its own section over every await, and loses it at its end."""

    @section("coroutine")
    async def work(name: str) -> None:
        for n in range(3):
            await asyncio.sleep(0)
            with user(application, f"{name} {n}"), section(f"section {name} {n}"):
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))
        assert not current().is_valid

    asyncio.run(both())
    assert flush()
    spans = application.spans()
    by_id = {span.context.span_id: span for span in spans}
    for name in ("a", "b"):
        own = [s for s in spans if s.name.startswith(f"{name} ")]
        assert len({parent_id(s) for s in own}) == 1
        assert by_id[parent_id(own[0])].name == "coroutine"
        for span in spans:
            if span.name.startswith(f"section {name}"):
                assert by_id[parent_id(span)].name == span.name.removeprefix("section ")


def parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def test_an_exception_leaves_the_context_as_it_was(application: Application) -> None:
    """However many sections it passes through."""
    with user(application, "train") as train:
        with pytest.raises(OSError), step(1), section("a"), section("b"):  # noqa: PT011
            raise OSError
        assert trace.get_current_span() is train


def test_a_section_may_be_entered_again_while_it_is_open(application: Application) -> None:
    """The same object, twice on the stack."""
    again = section("again")
    with again:
        outer = current()
        with again:
            assert current().span_id != outer.span_id
        assert current() == outer


def test_sections_that_end_out_of_order_leave_nothing_behind(application: Application) -> None:
    """A generator holds its section open over a yield; the caller's ends later, or earlier."""

    def produce() -> Generator[int, None, None]:
        with section("generator"):
            yield 1

    with user(application, "train") as train:
        items = produce()
        next(items)
        with section("caller"):
            assert list(items) == []
            assert current().is_valid
        assert trace.get_current_span() is train
        items = produce()
        with section("caller"):
            next(items)
        items.close()
        assert trace.get_current_span() is train


def test_what_the_user_leaves_in_the_context_stays_there(application: Application) -> None:
    """Baggage that was attached inside a section, and never detached, is not ours to remove."""

    def body() -> None:
        with section("a"):
            otel_context.attach(baggage.set_baggage("tenant", "x"))
        assert baggage.get_baggage("tenant") == "x"
        assert not current().is_valid

    copy_context().run(body)


def test_a_section_that_ends_in_another_context_breaks_nothing(application: Application) -> None:
    """A token could not be given back here; OpenTelemetry would log an error."""
    opened = section("a")
    elsewhere = copy_context()
    elsewhere.run(opened.__enter__)
    with section("b"):
        here = current()
        opened.__exit__(None, None, None)
        assert current() == here


def test_propagated_sections_leave_no_work_for_the_garbage_collector(
    application: Application,
) -> None:
    """A training that has switched it off does not grow."""
    gc.collect()
    gc.disable()
    try:
        for n in range(20):
            with step(n), section("outer"), section("inner"), user(application, "user"):
                pass
        assert flush()
        application.exporter.clear()
        assert [o for o in gc.get_objects() if type(o) is PropagatedRun] == []
    finally:
        gc.enable()


def test_processors_see_the_baggage_around_a_section(make_application: MakeApplication) -> None:
    """The parent context of the span is the user's, as for a span of the user."""
    from .test_sampler import Remember

    class Baggage(Remember):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            self.started.append(str(baggage.get_baggage("tenant", parent_context)))

    processor = Baggage()
    made = make_application(None, processor)
    made.configure(propagate_context=True)
    token = otel_context.attach(baggage.set_baggage("tenant", "x"))
    with section("a"):
        pass
    otel_context.detach(token)
    assert flush()
    assert processor.started == ["x"]


def test_the_sampler_decides_once_per_step_for_ours_and_theirs(
    make_application: MakeApplication,
) -> None:
    """Asked once by us when the step begins; the user's spans follow by the sampled flag."""
    sampler = Asked()
    made = make_application(ParentBased(sampler))
    made.configure(propagate_context=True)
    for n in range(4):
        with step(n), section("a"), phase("eval"), section("b"), user(made, f"user {n}"):
            assert current().trace_flags.sampled == (n % 2 == 0)
    assert flush()
    assert [name for _, name, _ in sampler.questions] == ["step"] * 4
    assert sorted(span.name for span in made.spans()) == sorted(
        ["step", "a", "eval", "b", "user 0", "step", "a", "eval", "b", "user 2"]
    )


def test_a_ratio_keeps_whole_traces(make_application: MakeApplication) -> None:
    """No span of a trace without its parent."""
    made = make_application(ParentBased(TraceIdRatioBased(0.3)))
    made.configure(propagate_context=True, sdk_spans_per_s=100_000)
    for n in range(50):
        with step(n), section("a"), user(made, "user"), section("b"):
            pass
    assert flush()
    known = {span.context.span_id for span in made.spans()}
    assert 5 * 4 <= len(known) <= 30 * 4
    assert len(known) % 4 == 0
    assert all(s.parent is None or s.parent.span_id in known for s in made.spans())


def test_a_step_above_the_rate_leaves_the_users_spans_as_they_are(
    make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """Our budget is no reason to sample the application's own spans."""
    made = make_application()
    made.configure(propagate_context=True, sdk_spans_per_s=3, endpoint=sink.url)
    for n in range(30):
        with step(n), section("a"), user(made, "user"):
            pass
    assert flush()
    shutdown("ok")
    users = [span for span in made.spans() if span.name == "user"]
    assert len(users) == 30
    known = {span.context.span_id for span in made.spans()}
    assert all(s.parent is None or s.parent.span_id in known for s in made.spans())
    assert 0 < len([s for s in users if s.parent is None]) < 30
    counted = [p.value for p in sink.points() if p.attributes.get("reason") == SDK_RATE]
    assert counted[-1] == 60 - len(made.ours()) > 0


def test_sections_that_are_open_at_configure_or_shutdown_do_no_harm(
    make_application: MakeApplication,
) -> None:
    """The context is clean after the last of them has ended."""
    made = make_application()
    outer, inner = section("outer"), section("inner")
    with outer:
        made.configure(propagate_context=True)
        with inner:
            assert current().is_valid
            shutdown("ok")
            with section("after"):
                pass
        assert not current().is_valid
    made.configure(propagate_context=True)
    shutdown("ok")
    assert [span.name for span in made.ours()] == []


def test_a_session_that_does_not_propagate_has_the_plain_methods(
    make_application: MakeApplication,
) -> None:
    """Off, a section is the very code it is without this feature."""
    plain = dict(vars(SectionTimer))
    made = make_application()
    made.configure()
    assert dict(vars(SectionTimer)) == plain
    assert Section.__enter__ is PLAIN["__enter__"]
    shutdown()
    made.configure(propagate_context=True)
    assert Section.__enter__ is not PLAIN["__enter__"]
    shutdown()
    assert dict(vars(SectionTimer)) == plain


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_function_is_still_one_graph(application: Application) -> None:
    """In a traced region a section is nothing at all, propagated or not."""
    torch = pytest.importorskip("torch")

    @section("decorated")
    def decorated(x: Any) -> Any:
        return x * 2

    def function(x: Any) -> Any:
        with EARLY, section("inside").run(tokens=1):
            return decorated(x) + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    with section("around"):
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    assert tree(application) == {"around": None}
