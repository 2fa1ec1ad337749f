"""The notifier of a collector: made of its settings and of what its worker publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.firing import Firing
from otel_straggler.collector.notifying import Notifying
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.worker import Worker


def _longest_for_s(alerts: AlertSettings) -> float:
    return max(
        alerts.hang_for_seconds,
        alerts.score_for_seconds,
        alerts.straggling_for_seconds,
        alerts.missing_for_seconds,
        alerts.no_data_seconds,
        alerts.run_slow_for_seconds,
    )


def notifying_for(
    settings: CollectorSettings,
    worker: Worker,
    keep: Callable[[dict[str, Any]], None],
) -> Notifying:
    """An alert of the last process is held until it would fire again if it were true."""
    alerts = settings.alerts
    hold_s = settings.liveness.most_timeout_seconds + _longest_for_s(alerts)
    return Notifying(
        alerts.notify,
        worker,
        evaluate=AlertEvaluator(alerts).evaluate,
        firing=Firing(hold_s, give_up_s=alerts.give_up_seconds),
        every_s=alerts.evaluation_seconds,
        give_up_s=alerts.give_up_seconds,
        keep=keep,
    )
