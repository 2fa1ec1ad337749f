"""The chart's templates with the values of its values.yaml, as plain manifests.

The templates use nothing of Helm but ``{{ .Values.NAME }}`` and ``{{ .Release.Namespace }}``, so
putting the values in their place gives what ``helm template`` gives; a test compares the two where
Helm is installed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

CHART: Final = Path(__file__).parents[1] / "examples" / "platforms" / "helm" / "otel-straggler"
NAMESPACE: Final = "observability"
_HEAD: Final = """\
# A collector in Kubernetes; docs/operate/kubernetes.md has the steps. Made from the Helm chart by
# docs/generate.py: change the chart, then run: make generate
#   kubectl create namespace observability
#   kubectl -n observability create secret generic otel-straggler-grants --from-file=grants
#   kubectl -n observability apply -f collector.yaml
"""


def manifests() -> str:
    """All of ``examples/platforms/kubernetes/collector.yaml``."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = {f".Values.{name}": str(value) for name, value in values.items()}
    known[".Release.Namespace"] = NAMESPACE
    files = sorted((CHART / "templates").glob("*.yaml"))
    return _HEAD + "---\n".join(with_values(f.read_text(encoding="utf-8"), known) for f in files)


def with_values(template: str, known: dict[str, str]) -> str:
    """A template with its values in place.

    Raises:
        KeyError: it names another value, or something that is none.

    >>> with_values("image: {{ .Values.image }}", {".Values.image": "a:1"})
    'image: a:1'
    """
    return re.sub(r"\{\{ ([^}]*) \}\}", lambda match: known[match[1]], template)
