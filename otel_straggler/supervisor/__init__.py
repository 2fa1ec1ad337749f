"""From knowing to acting: takes alerts and reports, decides by a policy, acts on hosts.

``causes.py``, ``fleet.py``, ``policy.py``, ``decide.py`` and ``xids.py`` are pure: time is an
argument. ``store.py`` is the write-ahead journal, ``engine.py`` the loop around both, ``api.py``
the HTTP side, ``executors/`` what acts, ``service.py`` the wiring.
"""
