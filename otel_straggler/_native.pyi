"""What the extension module in cuda_ext/ offers."""

from typing import Any

RECORD_VERSION: int
RECORD_BYTES: int

class Scanner:
    """OTLP trace requests to columns; see ``wire/native_scan.py``."""

    def __new__(
        cls, keys: list[tuple[str, int, int]], fates: tuple[int, int, int, int], /
    ) -> Scanner: ...
    def scan(self, body: bytes, /) -> tuple[Any, ...] | list[tuple[int, int, bytes, bytes]] | int:
        """Columns, or questions, or 1 (unfamiliar) or 2 (full)."""
    def learn_scope(self, number: int, is_own: bool, /) -> None: ...
    def learn_sender(self, number: int, source: int, fate: int, /) -> None: ...
    def learn_shape(
        self,
        number: int,
        section: int,
        fate: int,
        step: tuple[int, int],
        sequence: tuple[int, int, int],
        tokens: tuple[int, float],
        /,
    ) -> None: ...
