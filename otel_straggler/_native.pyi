"""What the extension module in cuda_ext/ offers."""

RECORD_VERSION: int
RECORD_BYTES: int

class SpanEncoder:
    """Records to OTLP. All texts are UTF-8; every method may be called from any thread."""

    def __new__(
        cls,
        words: tuple[bytes, ...],
        run_id: bytes,
        attempt: int,
        group: bytes,
        rank: int,
        seed: int,
        spans_per_s: int,
        /,
    ) -> SpanEncoder: ...
    def add_section(self, number: int, name: bytes, kind: bytes, /) -> None: ...
    def add_phase(self, number: int, text: bytes, /) -> None: ...
    def add_epoch(self, number: int, resource: bytes, /) -> None: ...
    def encode(self, block: bytes, offset_ns: int, one_in: int, /) -> list[tuple[bytes, int]]:
        """Requests and how many spans each holds. Without the GIL."""

    def counts(self) -> dict[str, int]: ...
    def folded(self) -> dict[str, int]: ...

def blake2b(text: bytes, digest_size: int, person: bytes, /) -> bytes: ...
def trace_ids(
    run_id: bytes, attempt: int, group: bytes, rank: int, step: int, unix_ns: int, /
) -> tuple[bytes, bytes, bytes]: ...
def sketch(lengths_ns: list[int], /) -> bytes: ...
