"""Load data in workers: `python loader_workers.py before|after [TRACES]`."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import STEPS, model, run


class Slow(Dataset):
    """Samples that take 0.5 ms to decode."""

    def __len__(self) -> int:
        return STEPS * 16

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.zeros(64)


def main() -> None:
    workers = {"num_workers": 2, "persistent_workers": True} if sys.argv[1] == "after" else {"num_workers": 0}
    net = model(layers=12)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batch: torch.Tensor) -> None:
        net(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    run(DataLoader(Slow(), batch_size=16, **workers), step)


if __name__ == "__main__":
    main()
