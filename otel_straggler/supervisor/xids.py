"""How severe an XID of NVIDIA's driver is: what has to be restarted before work can go on.

Source: "Analyzing Xid Errors with the Xid Catalog", docs.nvidia.com/deploy/xid-errors, the column
"Resolution Bucket (Immediate Action)". IGNORE is ``none``, RESTART_APP ``application``, RESET_GPU
and the workflows that end in it (45: follow the other one; 48; NVLink) ``gpu``; RESTART_BM and
CHECK_MECHANICALS are ``host``. A supervisor that restarts a job on the same host cannot reset its
GPU, so a policy treats ``gpu`` and ``host`` alike unless its executor can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

Severity = Literal["none", "application", "gpu", "host", "unknown"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

_CODES: Final[Mapping[Severity, tuple[int, ...]]] = {
    "none": (
        37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 154, 157,
        160, 161,
    ),
    "application": (
        8, 11, 13, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86,
        88, 89, 94, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132,
        133, 134, 135, 139,
    ),
    "gpu": (
        46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148, 149,
        150, 155, 156, 158, 171, 172,
    ),
    "host": (54, 79),
}  # fmt: skip
XIDS: Final[Mapping[int, Severity]] = {
    code: severity for severity, codes in _CODES.items() for code in codes
}
_XID: Final = re.compile(r"(?:xid[_ :-]*)?(\d{1,4})", re.IGNORECASE | re.ASCII)


def severity_of(xid: int, overrides: Mapping[int, Severity]) -> Severity:
    """
    >>> severity_of(79, {}), severity_of(31, {}), severity_of(999, {}), severity_of(31, {31: "gpu"})
    ('host', 'application', 'unknown', 'gpu')
    """
    return overrides.get(xid, XIDS.get(xid, "unknown"))


def xid_in(text: str) -> int | None:
    """The code of a label's value.

    >>> xid_in("79"), xid_in("xid_48"), xid_in("XID 13"), xid_in("ecc_uncorrected"), xid_in("0")
    (79, 48, 13, None, None)
    """
    result = _XID.fullmatch(text.strip())
    return int(result[1]) or None if result else None
