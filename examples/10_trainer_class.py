"""You will see rank 2 of a trainer class, as torchtitan has one, named: no line marks a section.
Run it with: python examples/10_trainer_class.py
It takes about 30 seconds, longer on a busy machine.
"""

import torch
import torch.distributed as dist
from shared.watching import STEPS, Layer, watch
from torch.nn.parallel import DistributedDataParallel

import otel_straggler as ots


class Trainer:
    """Data, model and optimizer in one place; a step works on several microbatches."""

    def __init__(self, microbatches: int = 2) -> None:
        self.microbatches = microbatches
        self.model = DistributedDataParallel(torch.nn.Sequential(Layer(), Layer()))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.data = torch.utils.data.DataLoader(torch.randn(4 * STEPS * microbatches, 32), 4)

    def train(self) -> None:
        batches = iter(self.data)
        with ots.watch(self.model, self.optimizer, self.data):
            for _ in range(STEPS):
                self.train_step(batches)

    def train_step(self, batches) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.microbatches):
            self.forward_backward(next(batches))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def forward_backward(self, batch) -> None:
        loss = self.model(batch).square().mean() / self.microbatches
        loss.backward()


def train() -> None:
    """What a script around the trainer does."""
    dist.init_process_group("gloo")
    ots.configure()  # the collector comes from the environment, the rank from torchrun
    Trainer().train()
    ots.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    watch(train)
