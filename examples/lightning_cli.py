"""LightningCLI: `python lightning_cli.py fit --config lightning_cli.yaml`; the profiler is a line of the file."""

import torch
from lightning.pytorch.cli import LightningCLI
from lightning_fit import Classifier
from torch.utils.data import DataLoader, TensorDataset


class Trained(Classifier):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.randn(3200, 64), torch.randint(0, 10, (3200,))), batch_size=64)


if __name__ == "__main__":
    LightningCLI(Trained, save_config_callback=None)
