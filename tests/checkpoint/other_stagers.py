"""Has DCP import its stagers from the folder STAGERS, which has the files of another torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


class OtherStagers:
    """In ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        package, _, module = name.rpartition(".")
        path = Path(os.environ["STAGERS"]) / f"{module}.py"
        if package != "torch.distributed.checkpoint" or not path.exists():
            return None
        return importlib.util.spec_from_file_location(name, path)


if "STAGERS" in os.environ:
    assert "torch.distributed.checkpoint" not in sys.modules
    sys.meta_path.insert(0, OtherStagers)  # type: ignore[arg-type]
