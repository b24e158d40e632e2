"""Accelerate with gradient accumulation: `accumulate=4` makes the optimizer's update the step."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import hpuprof


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    model = torch.nn.Linear(64, 10)
    data = TensorDataset(torch.randn(12800, 64), torch.randint(0, 10, (12800,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=64)
    )
    for x, y in hpuprof.steps(loader, "traces/", accumulate=4):
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
