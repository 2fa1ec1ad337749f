"""The chart's templates with the values of its values.yaml, as plain manifests.

The templates use nothing of Helm but ``{{ .Values.NAME }}``, ``{{ .Release.Namespace }}``, files of
the chart, and one condition around a whole file, so putting these in their place gives what ``helm
template`` gives; a test compares the two where Helm is installed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[1] / "examples" / "platforms" / "helm" / "otel-straggler"
NAMESPACE: Final = "observability"
OPERATOR: Final = "prometheusOperator"
_GUARD: Final = re.compile(r"\{\{- if \.Values\.(\w+) \}\}\n(.*)\n\{\{- end \}\}\n", re.DOTALL)
_FILE: Final = re.compile(r'\{\{ \.Files\.Get "([^"]+)" \| indent (\d+) \}\}')
_HEAD: Final = """\
# A collector in Kubernetes; docs/operate/kubernetes.md has the steps. Made from the Helm chart by
# docs/generate.py: change the chart, then run: make generate
#   kubectl create namespace observability
#   kubectl -n observability create secret generic otel-straggler-grants --from-file=grants
#   kubectl -n observability apply -f collector.yaml
"""
_HEAD_OF_MONITORING: Final = """\
# For the Prometheus operator: scrapes the collector of collector.yaml, with all alerts. Made from
# the Helm chart by docs/generate.py: change the chart, then run: make generate
#   kubectl -n observability create secret generic otel-straggler-reader \\
#     --from-file=token=prometheus.token
#   kubectl -n observability apply --server-side -f monitoring.yaml
"""


def manifests() -> str:
    """All of ``examples/platforms/kubernetes/collector.yaml``."""
    return _HEAD + "---\n".join(rendered(values()))


def monitoring(files: Mapping[str, str] | None = None) -> str:
    """All of ``examples/platforms/kubernetes/monitoring.yaml``: what else there is with a
    Prometheus operator. ``files``: of the chart by name, in the place of those on the disk."""
    without = set(rendered(values()))
    return _HEAD_OF_MONITORING + "---\n".join(
        each for each in rendered({**values(), OPERATOR: True}, files) if each not in without
    )


def values() -> dict[str, Any]:
    """Of ``values.yaml``."""
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return read


def rendered(chosen: Mapping[str, Any], files: Mapping[str, str] | None = None) -> Iterator[str]:
    """The templates of the chart, without those whose condition is false."""
    known = {f".Values.{name}": str(value) for name, value in chosen.items()}
    known[".Release.Namespace"] = NAMESPACE
    for file in sorted((CHART / "templates").glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        guard = _GUARD.fullmatch(text)
        if guard is None:
            yield with_values(text, known, files)
        elif chosen[guard[1]]:
            yield with_values(f"{guard[2]}\n", known, files)


def with_values(
    template: str, known: Mapping[str, str], files: Mapping[str, str] | None = None
) -> str:
    """A template with its values and files in place.

    Raises:
        KeyError: it names another value, or something that is none.

    >>> with_values("image: {{ .Values.image }}", {".Values.image": "a:1"})
    'image: a:1'
    """
    parts = _FILE.split(template)  # whose content may have braces of its own
    for at in range(0, len(parts), 3):
        parts[at] = re.sub(r"\{\{ ([^}]*) \}\}", lambda match: known[match[1]], parts[at])
    for at in range(1, len(parts), 3):
        text = (files or {}).get(parts[at]) or (CHART / parts[at]).read_text(encoding="utf-8")
        parts[at] = textwrap.indent(text.rstrip("\n"), " " * int(parts[at + 1]))
        parts[at + 1] = ""
    return "".join(parts)
