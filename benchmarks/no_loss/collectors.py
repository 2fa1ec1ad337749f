"""One collector after another on the same ports, each with what it counted."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import urllib.request
from collections import Counter

from otel_straggler.demo.processes import Collector

SCRAPE_S = 0.25
LONGEST_END_S = 60.0
_SAMPLE = re.compile(
    r'^straggler_collector_(spans|rows)_total\{.*?outcome="(\w+)".*\} (\S+)$', re.MULTILINE
)
_QUEUE = re.compile(r"^straggler_collector_forward_(?:queue|held)\w*\{.*\} (\S+)$", re.MULTILINE)
_LAST_TEXT = "counts at the end: "


class Counted(Collector):
    """A collector that is scraped all along, because a killed one cannot be asked.

    Attributes:
        spans: taken, whatever became of them; as last scraped, or as it said when it ended.
        rows: by outcome, likewise.
        forwarded: requests by outcome, if it could say.
        unseen_s: how long before its end the last scrape began.
    """

    def __init__(self, *flags: str, addresses: dict[str, str] | None = None) -> None:
        super().__init__(*flags, addresses=addresses)
        self.spans = 0
        self.rows: dict[str, int] = {}
        self.forwarded: dict[str, int] = {}
        self.unseen_s = 0.0
        self._scraped_at_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_passed_on(self) -> None:
        """Nothing waits to be forwarded any more."""
        ends_at_s = time.monotonic() + LONGEST_END_S
        while time.monotonic() < ends_at_s:
            page = self._page()
            if page and not any(map(float, _QUEUE.findall(page))):
                return
            time.sleep(SCRAPE_S)

    def end(self, number: signal.Signals) -> None:
        """SIGTERM, and wait until it has ended by itself; or SIGKILL, right after a scrape."""
        self._is_over.set()
        self._thread.join()
        self._scrape()
        self._process.send_signal(number)
        exit_code = self._process.wait(LONGEST_END_S)
        self.unseen_s = time.monotonic() - self._scraped_at_s
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self.close()
        if number == signal.SIGKILL:
            return
        if exit_code or _LAST_TEXT not in text:
            msg = f"the collector ended with {exit_code}:\n{text[-2000:]}"
            raise RuntimeError(msg)
        last = json.loads(text.rpartition(_LAST_TEXT)[2].splitlines()[0])
        self.spans = sum(last["spans"].values())
        self.rows, self.forwarded = last["rows"], last["forwarded"]

    def give_up(self) -> None:
        """Whatever its state: leave no process behind."""
        self._is_over.set()
        self._thread.join()
        self.close()

    def _run(self) -> None:
        while not self._is_over.wait(SCRAPE_S):
            self._scrape()

    def _scrape(self) -> None:
        began_s = time.monotonic()
        page = self._page()
        if not page:
            return
        self._scraped_at_s = began_s
        counts: Counter[tuple[str, str]] = Counter()
        for what, outcome, value in _SAMPLE.findall(page):
            counts[what, outcome] += int(float(value))
        self.spans = sum(count for (what, _), count in counts.items() if what == "spans")
        self.rows = {outcome: count for (what, outcome), count in counts.items() if what == "rows"}

    def _page(self) -> str:
        """Empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""
