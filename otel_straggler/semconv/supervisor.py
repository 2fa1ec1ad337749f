"""The supervisor's spans and metrics."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import Attribute, Metric

SUPERVISOR_CAUSE_SPAN: Final = "supervisor.cause"
"""An alert or a report, since it began."""
SUPERVISOR_DECISION_SPAN: Final = "supervisor.decision"
"""What followed from it, until that has ended; linked to the span of its cause."""
SUPERVISOR_STEP_SPAN: Final = "supervisor.step"
"""One call of the executor; a child of the decision."""
SUPERVISOR_LABEL_PREFIX: Final = "straggler.supervisor.label."
"""Of the labels of an alert, and the fields of a report, on the span of a cause."""

# --- supervisor -------------------------------------------------------------------------------
SUPERVISOR_CAUSE_ID: Final = Attribute(
    "straggler.supervisor.cause.id", "of an alert its fingerprint and start, of a report its id"
)
SUPERVISOR_CAUSE_NAME: Final = Attribute(
    "straggler.supervisor.cause.name", "name of the alert, or kind of the report"
)
SUPERVISOR_ACTION: Final = Attribute(
    "straggler.supervisor.action", "what was decided; `none` if nothing is done"
)
SUPERVISOR_REASON: Final = Attribute(
    "straggler.supervisor.reason", "why nothing is done, as in docs/operate/supervisor.md"
)
SUPERVISOR_OUTCOME: Final = Attribute(
    "straggler.supervisor.outcome", "ignored, done, failed, unknown, or expired"
)
SUPERVISOR_RULE: Final = Attribute("straggler.supervisor.rule", "rule of the policy that matched")
SUPERVISOR_CODE: Final = Attribute(
    "straggler.supervisor.code", "what the cooldown is for: xid_ and a number, or the cause's name"
)
SUPERVISOR_DEVICE: Final = Attribute(
    "straggler.supervisor.device", "GPU or rank that the cause is about"
)
SUPERVISOR_REPLACEMENT: Final = Attribute(
    "straggler.supervisor.replacement", "spare host that takes the place of another"
)
SUPERVISOR_STEP: Final = Attribute(
    "straggler.supervisor.step", "what the executor did, such as drain"
)
SUPERVISOR_TARGET: Final = Attribute(
    "straggler.supervisor.target", "host, job or pods that a step acts on"
)

# --- the supervisor about itself --------------------------------------------------------------
SUPERVISOR_DECISIONS: Final = Metric(
    "straggler.supervisor.decisions",
    "{decision}",
    "counter",
    "decisions that have ended, by action and outcome",
    ("action", "outcome"),
    (),
)
SUPERVISOR_IGNORED: Final = Metric(
    "straggler.supervisor.ignored",
    "{cause}",
    "counter",
    "alerts and reports that nothing follows from, by reason",
    ("reason",),
    (),
)
SUPERVISOR_HOSTS: Final = Metric(
    "straggler.supervisor.hosts", "{host}", "gauge", "hosts by state", ("state",), ()
)
SUPERVISOR_STOPPED: Final = Metric(
    "straggler.supervisor.stopped", "{flag}", "gauge", "1 if a person has stopped it", (), ()
)
SUPERVISOR_UNFINISHED: Final = Metric(
    "straggler.supervisor.unfinished",
    "{decision}",
    "gauge",
    "decisions whose action has not ended",
    (),
    (),
)
