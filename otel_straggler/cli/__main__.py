"""``python -m otel_straggler.cli`` is ``otel-straggler``."""

import sys

from otel_straggler.cli import main

if __name__ == "__main__":
    sys.exit(main())
