"""What a Prometheus further up, or a store over months, has to take: the series that dashboards and
rules read, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from otel_straggler import semconv
from otel_straggler.semconv import Metric

_WORD: Final = re.compile(r"[A-Za-z_][\w:]*")
_OTHERS: Final = re.compile(r"ALERTS|DCGM_FI_\w+|run_section(?:_rank)?:\w+:\w+")
"""Series of Prometheus itself, of DCGM exporter, and scores that rules record."""
_NOTE: Final = (
    "# Made by docs/generate.py: every series that the dashboards and the rules of this version\n"
    "# read. docs/operate/scale-out.md says how it is used.\n"
)
_FEDERATION: Final = """\
# For scrape_config_files of a Prometheus above those of several clusters, with metrics.cluster set
# on the collectors of each. These two targets are examples.
scrape_configs:
  - job_name: otel-straggler-federation
    honor_labels: true # those of the runs, and of the clusters
    metrics_path: /federate
    static_configs: [{targets: ["prometheus.cluster-a:9090", "prometheus.cluster-b:9090"]}]
    params:
      "match[]":
"""
_REMOTE_WRITE: Final = """\
# For prometheus.yml of each Prometheus that scrapes collectors. This address is an example.
remote_write:
  - url: http://mimir:9009/api/v1/push
    send_exemplars: true
    write_relabel_configs:
      - action: keep
        source_labels: [__name__]
        regex: "\\
"""


def names_read(texts: Iterable[str]) -> list[str]:
    """Names of all series that dashboards or rules ask for, and of recorded scores; sorted. What
    rules record for themselves, and buckets of histograms, are not among them.

    >>> names_read(['max(straggler_run_hung{run_id="r"}) and on () ALERTS{}'])
    ['ALERTS', 'straggler_run_hung']
    """
    values = [*vars(semconv).values(), *semconv.OVER_RANKS.values()]
    known = {value.prometheus_name for value in values if isinstance(value, Metric)}
    words = _WORD.findall("\n".join(texts))
    return sorted({word for word in words if word in known or _OTHERS.fullmatch(word)})


def federation_file(texts: Iterable[str]) -> str:
    """``federation.yml``: a scrape configuration."""
    names = "".join(f'        - "{name}"\n' for name in names_read(texts))
    return _NOTE + _FEDERATION + names


def remote_write_file(texts: Iterable[str]) -> str:
    """``remote-write.yml``: a part of a configuration."""
    names = "|\\\n".join(f"          {name}" for name in names_read(texts))
    return f'{_NOTE}{_REMOTE_WRITE}{names}"\n'
