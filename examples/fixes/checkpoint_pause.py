"""Save checkpoints in the background: `python checkpoint_pause.py before|after [TRACES]`."""

import copy
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from training import STEPS, model, run


def save(state: dict, file: Path) -> None:
    with file.open("wb", buffering=0) as opened:
        torch.save(state, opened)
        os.fsync(opened.fileno())  # so that it outlives the machine


def main() -> None:
    net, number = model(width=512, layers=8), iter(range(STEPS))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as background:

        def step(batch: torch.Tensor) -> None:
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if next(number) % 6 != 5:
                return
            if sys.argv[1] == "after":  # a copy now, the file behind training
                background.submit(save, copy.deepcopy(net.state_dict()), Path(folder, "checkpoint.pt"))
            else:
                save(net.state_dict(), Path(folder, "checkpoint.pt"))

        run([torch.zeros(8, 512)] * STEPS, step)


if __name__ == "__main__":
    main()
