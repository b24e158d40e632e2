"""Save checkpoints in the background: `python checkpoint_pause.py before|after [TRACES]`."""

import copy
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import torch
from training import STEPS, model, run


def save(state: dict, file: Path) -> None:
    with file.open("wb") as opened:
        torch.save(state, opened)
        opened.flush()
        os.fsync(opened.fileno())  # so that it outlives the machine


def main() -> None:
    net = model(width=512, layers=8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    number = count()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as background:
        file = Path(folder) / "checkpoint.pt"

        def step(batch: torch.Tensor) -> None:
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if next(number) % 6 == 5:
                if sys.argv[1] == "after":  # a copy now, the file behind training
                    background.submit(save, copy.deepcopy(net.state_dict()), file)
                else:
                    with torch.profiler.record_function("save_checkpoint"):
                        save(net.state_dict(), file)

        run([torch.zeros(8, 512)] * STEPS, step)


if __name__ == "__main__":
    main()
