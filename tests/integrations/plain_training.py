"""A training that does not mention this package: by a script's way, `python plain_training.py`.

It prints what a program can ask about itself, and ends as its last argument has it: by an exit
code, by an exception (`raise`), or well.
"""

from __future__ import annotations

import json
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(6, 2))):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    about = {"argv": sys.argv, "name": __name__, "path": sys.path[0], "file": __file__}
    about["hooks"] = len(model._forward_hooks)
    print(json.dumps(about), flush=True)
    if sys.argv[1:] == ["raise"]:
        raise ValueError("planted")
    sys.exit(int(sys.argv[1]) if sys.argv[1:] else None)


if __name__ == "__main__":
    main()
