"""A plain PyTorch loop, recorded with one line: `for batch in hpuprof.steps(loader, "traces/")`."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import hpuprof


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(3200, 64), torch.randint(0, 10, (3200,)))
    for x, y in hpuprof.steps(DataLoader(data, batch_size=64), "traces/"):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
