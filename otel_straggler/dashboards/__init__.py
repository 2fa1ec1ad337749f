"""Pages for Grafana: made of code at build time, shipped as files, exported without the code.

``exported`` needs nothing but the standard library. All else needs ``grafana-foundation-sdk``,
which is for development only.
"""
