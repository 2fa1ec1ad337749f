"""Damage to valid content, as disks, editors and people do it."""

from __future__ import annotations

from hypothesis import strategies as st

_MARKS = [b"\n", b"\0", b'"', b"{", b"]", b",", b"-1", b"1e999", b"null", b"\xff\xfe", b"9" * 30]


@st.composite
def damaged(draw: st.DrawFn, contents: list[bytes]) -> bytes:
    """One of the contents, cut, doubled, or with a few wounds."""
    data = draw(st.sampled_from(contents))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.sampled_from([0, 1, 2, 8, 200, len(data)]))
        again = data[at : at + draw(st.sampled_from([0, 0, 5, 300]))]
        new = draw(st.one_of(st.just(again), st.sampled_from(_MARKS), st.binary(max_size=8)))
        data = data[:at] + new + data[at + gone :]
    return data
