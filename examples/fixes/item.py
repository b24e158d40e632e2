"""Read the loss every 20 steps instead of in each: `python item.py before|after [TRACES]`."""

import sys
from itertools import count

import torch
from training import STEPS, model, run

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    every = 20 if sys.argv[1] == "after" else 1
    net = model(layers=24).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    number, losses = count(), []

    def step(batch: torch.Tensor) -> None:
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if next(number) % every == 0:
            losses.append(loss.item())  # waits until the device has caught up

    run([torch.zeros(32, 64, device=DEVICE)] * STEPS, step)


if __name__ == "__main__":
    main()
