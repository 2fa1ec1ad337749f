"""Nothing else of the application's tracing changes, and no random number is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from otel_straggler import configure, flush, section, shutdown, step
from otel_straggler.testing import CapturedRequests

from .conftest import Application, MakeApplication

Mode = Callable[[Application, str], None]


def off(application: Application, url: str) -> None:
    """Without us."""


def to_collector(application: Application, url: str) -> None:
    configure(endpoint=url, run_id="run")


def to_provider(application: Application, url: str) -> None:
    application.configure()


def propagating(application: Application, url: str) -> None:
    application.configure(propagate_context=True)


def to_both(application: Application, url: str) -> None:
    application.configure(endpoint=url, propagate_context=True)


MODES = [to_collector, to_provider, propagating, to_both]


def own_program(application: Application) -> list[tuple[object, ...]]:
    """A program that traces itself, its sections around; what its own spans look like."""
    random.seed(7)
    tracer = application.tracer
    with tracer.start_as_current_span("train"):
        for n in range(3):
            with step(n):
                with section("load"):
                    random.random()
                with tracer.start_as_current_span("batch", attributes={"n": n}):
                    pass
    with tracer.start_as_current_span("test"):
        pass
    assert flush()
    own = [s for s in application.spans() if s.instrumentation_scope.name == "shop"]
    return [describe(span) for span in own]


def describe(span: ReadableSpan) -> tuple[object, ...]:
    return (
        span.name,
        span.context.trace_id,
        span.context.span_id,
        span.context.trace_flags,
        span.parent and span.parent.span_id,
        dict(span.attributes or {}),
        dict(span.resource.attributes),
        [(link.context.trace_id, link.context.span_id) for link in span.links],
        span.kind,
        span.status.status_code,
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_applications_own_spans_are_the_same_with_and_without_us(
    mode: Mode, make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """Ids, parents, flags, attributes, resource: all of it, under the same seed."""
    sampler = ParentBased(TraceIdRatioBased(0.999))
    without = own_program(make_application(sampler))
    application = make_application(sampler)
    mode(application, sink.url)
    assert own_program(application) == without
    assert len(without) == 5


@pytest.mark.parametrize("mode", MODES)
def test_provider_sampler_generator_context_and_globals_are_untouched(
    mode: Mode, make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """Everything that the application can look at is the object it was."""
    sampler = ParentBased(TraceIdRatioBased(0.5))
    application = make_application(sampler)
    provider = application.provider
    before = state(application)
    mode(application, sink.url)
    during = otel_context.get_current()
    own_program(application)
    assert otel_context.get_current() is during
    shutdown()
    assert state(application) == before
    assert provider.sampler is sampler
    assert type(provider.id_generator) is RandomIdGenerator


def state(application: Application) -> list[object]:
    provider = application.provider
    tracer = application.tracer
    processors = provider._active_span_processor
    return [
        trace.get_tracer_provider(),
        provider.sampler,
        provider.id_generator,
        provider.resource,
        processors,
        getattr(processors, "_span_processors", None),
        provider._span_limits,
        tracer.sampler,  # type: ignore[attr-defined]
        tracer.id_generator,  # type: ignore[attr-defined]
        otel_context.get_current(),
    ]


@pytest.fixture
def _torch_untouched() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(before)


@pytest.mark.usefixtures("_torch_untouched")
@pytest.mark.parametrize("mode", MODES)
def test_a_training_draws_the_same_random_numbers_with_and_without_us(
    mode: Mode, make_application: MakeApplication, sink: CapturedRequests
) -> None:
    """Python's, NumPy's and torch's generators end where they would have, and so do the weights."""
    without = training()
    application = make_application()
    mode(application, sink.url)
    assert training() == without
    shutdown()
    ours = len(application.ours()) or len(sink.spans())
    assert ours == 5 * 4


def training() -> list[Any]:
    """Five steps that shuffle, initialise, drop out and augment; where everything ended."""
    import numpy as np
    import torch

    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = list(range(10))
    for n in range(5):
        with step(n):
            with section("load", kind="data"):
                random.shuffle(order)
                noise = torch.from_numpy(np.random.rand(2, 4)).float()
            with section("forward"):
                loss = model(torch.randn(2, 4) + noise).square().sum()
            with section("backward"):
                loss.backward()
                optimizer.step()
    flush()
    weights = [parameter.detach().tolist() for parameter in model.parameters()]
    numpy_state = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    return [random.getstate(), numpy_state, torch.random.get_rng_state().tolist(), order, weights]
