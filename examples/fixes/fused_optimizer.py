"""Fuse the optimizer's launches: `python fused_optimizer.py before|after [TRACES]`."""

import sys

import torch
from training import STEPS, model, run


def main() -> None:
    net = model(width=32, layers=60)
    how = {"fused": True} if sys.argv[1] == "after" else {"foreach": False}
    optimizer = torch.optim.AdamW(net.parameters(), **how)

    def step(batch: torch.Tensor) -> None:
        net(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    run([torch.zeros(8, 32)] * STEPS, step)


if __name__ == "__main__":
    main()
