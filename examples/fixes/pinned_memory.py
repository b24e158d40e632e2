"""Copy batches from pinned memory without waiting: `python pinned_memory.py before|after [TRACES]`."""

import sys

import torch
from training import STEPS, model, run

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    after = sys.argv[1] == "after"
    net = model(width=256, layers=6).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batch = torch.zeros(512, 256)
    if after and DEVICE != "cpu":
        batch = batch.pin_memory()  # in a DataLoader: pin_memory=True

    def step(batch: torch.Tensor) -> None:
        net(batch.to(DEVICE, non_blocking=after)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    run([batch] * STEPS, step)


if __name__ == "__main__":
    main()
