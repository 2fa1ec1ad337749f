"""Text that the page has; markup of it is shown as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from otel_straggler.dashboards.preview.chosen import filled
from otel_straggler.dashboards.preview.drawn import Drawn, Look
from otel_straggler.dashboards.preview.frames import Frame


def draw(_: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    content = filled(
        str((panel.get("options") or {}).get("content") or ""), look.chosen, {}, is_query=False
    )
    html = f'<pre class="text">{escape(content)}</pre>'
    return Drawn(html, None, int(bool(content)), int(bool(content)))
