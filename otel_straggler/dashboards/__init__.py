"""Dashboards for Grafana, made of code and shipped as files.

``export`` needs only the standard library; all else needs ``grafana-foundation-sdk``, which is for
development only.
"""
