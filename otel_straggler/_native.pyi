"""What the extension module in cuda_ext/ offers."""

RECORD_VERSION: int
RECORD_BYTES: int
