"""One rank of a DistributedDataParallel training over gloo that profiles itself as the README says.

Arguments: the folder of the profile, and for how many seconds rank 1 sleeps in each step once the
profile has begun to skip none.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import otel_straggler as ots


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(600, 600) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    is_slow = dist.get_rank() == 1
    with ots.profile(sys.argv[1]):
        for n in range(22):
            ots.step(n)
            if is_slow and n >= 11:
                time.sleep(float(sys.argv[2]))
            model(torch.ones(4, 600)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
