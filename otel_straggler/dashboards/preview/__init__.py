"""A page for Grafana drawn without Grafana: its JSON, asked of a Prometheus, as one HTML file.

`build.preview_pages` does it all; below it the order is ``pages`` (what is to be drawn), ``ranges``
and ``variables`` (what is chosen), ``queries`` (asked of ``prometheus``), ``frames`` (the answers),
``transformations``, ``overrides`` (how each field shows), ``panels`` (one file a kind) and
``document``. Rules that are Grafana's are kept as Grafana has them, also where they surprise,
because a preview is there to show the surprise.
"""
