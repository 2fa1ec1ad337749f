"""Makes a script that was written for NVRx runnable here: another import line, and no GPU.

NVRx's examples ask for NCCL, CUDA devices and a download of MNIST. What is changed besides the
import is only what a machine without a GPU and without a network demands; no call to the detector.
"""

from __future__ import annotations

from pathlib import Path

IMPORT = (
    "from nvidia_resiliency_ext import straggler",
    "from otel_straggler import detector as straggler",
)
WITHOUT_GPU = (
    ('backend="nccl"', 'backend="gloo"'),
    ('torch.device(f"cuda:{local_rank}")', 'torch.device("cpu")'),
    ('torch.device("cuda")', 'torch.device("cpu")'),
    ('device="cuda"', 'device="cpu"'),
    ("torch.cuda.set_device(device)", "pass"),
    ("torch.cuda.set_device(args.local_rank)", "pass"),
    (", device_ids=[local_rank]", ""),
    ("/opt/nvidia/straggler-reports/", ""),
    # gloo aborts now and then in a process that ends with its group still there, as this one does
    ('    print_rank0("DONE")', '    print("DONE", flush=True), os._exit(0)'),
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
    text = script.read_text()
    old, new = IMPORT
    assert old in text, f"{script.name} no longer imports the detector by this line"
    text = text.replace(old, new)
    for old, new in WITHOUT_GPU:
        text = text.replace(old, new)
    (folder / "torchvision").mkdir(exist_ok=True)
    for name, source in TORCHVISION.items():
        (folder / "torchvision" / name).write_text(source)
    copy = folder / script.name
    copy.write_text(text)
    return copy
