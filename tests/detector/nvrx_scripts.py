"""Makes a script that was written for NVRx runnable here: another import line, and no GPU.

NVRx's examples ask for NCCL, CUDA devices and a download of MNIST. What is changed besides the
import is only what a machine without a GPU and without a network demands; no call to the detector.
"""

from __future__ import annotations

import re
from pathlib import Path

IMPORTS = (
    (
        r"from nvidia_resiliency_ext(\.attribution)? import straggler\b",
        "from otel_straggler import detector as straggler",
    ),
    (
        r"import nvidia_resiliency_ext(\.attribution)?\.straggler as straggler\b",
        "import otel_straggler.detector as straggler",
    ),
    (
        r"from nvidia_resiliency_ext(\.attribution)?\.straggler import ",
        "from otel_straggler.detector import ",
    ),
)
"""Of all releases: the package moved in 0.5."""
WITHOUT_GPU = (
    ('backend="nccl"', 'backend="gloo"'),
    ('torch.device(f"cuda:{local_rank}")', 'torch.device("cpu")'),
    ('torch.device("cuda")', 'torch.device("cpu")'),
    ('device="cuda"', 'device="cpu"'),
    ("torch.device('cuda')", "torch.device('cpu')"),
    ("torch.cuda.synchronize()", "pass"),
    ("torch.cuda.set_device(device)", "pass"),
    ("torch.cuda.set_device(args.local_rank)", "pass"),
    (", device_ids=[local_rank]", ""),
    ("/opt/nvidia/straggler-reports/", ""),
    # gloo aborts now and then in a process that ends with its group still there, as this one does
    ('    print_rank0("DONE")', '    print("DONE", flush=True), os._exit(0)'),
)
WITHOUT_INTERNALS = (
    # the number of each section's name, which the test looks at no more
    ("straggler.Detector.reporter.name_mapper.id_to_section_name.copy()", "{}"),
)
TORCHVISION = {
    "__init__.py": "from . import datasets, transforms\n",
    "transforms.py": (
        "class ToTensor: ...\n"
        "class Compose:\n    def __init__(self, parts): ...\n"
        "class Normalize:\n    def __init__(self, mean, std): ...\n"
    ),
    "datasets.py": (
        "import torch\n"
        "class MNIST(torch.utils.data.Dataset):\n"
        "    def __init__(self, *args, **kwargs):\n"
        "        self.images = torch.rand(4000, 1, 28, 28)\n"
        "    def __len__(self):\n        return len(self.images)\n"
        "    def __getitem__(self, at):\n        return self.images[at], at % 10\n"
    ),
}


def adapted(script: Path, folder: Path) -> Path:
    """A copy of ``script`` in ``folder`` that runs on a CPU, with a stand-in for torchvision."""
    text = with_our_import(script)
    (folder / "torchvision").mkdir(exist_ok=True)
    for name, source in TORCHVISION.items():
        (folder / "torchvision" / name).write_text(source)
    copy = folder / script.name
    copy.write_text(text)
    return copy


def adapted_tests(unit: Path, names: tuple[str, ...], folder: Path) -> Path:
    """Copies of NVRx's unit tests, as a package in ``folder`` that runs on a CPU."""
    package = folder / "unit"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_utils.py").write_text((unit / "_utils.py").read_text())
    for name in names:
        (package / name).write_text(with_our_import(unit / name))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    return package


def with_our_import(script: Path) -> str:
    """The text of a script, with the import line changed and nothing that needs a GPU."""
    text, imports = script.read_text(), 0
    for old, new in IMPORTS:
        text, count = re.subn(old, new, text)
        imports += count
    assert imports == 1, f"{script.name} imports the detector {imports} times by the known lines"
    for before, after in (*WITHOUT_GPU, *WITHOUT_INTERNALS):
        text = text.replace(before, after)
    return text
