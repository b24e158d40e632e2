"""Lightning Fabric: the same line around the loader."""

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

import hpuprof


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    model = torch.nn.Linear(64, 10)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = TensorDataset(torch.randn(3200, 64), torch.randint(0, 10, (3200,)))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=64))
    for x, y in hpuprof.steps(loader, "traces/"):
        fabric.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
