"""Lightning: pass `HPUProfiler()` to the Trainer. On Gaudi add `accelerator="hpu", devices=8`."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from hpuprof import HPUProfiler


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    data = TensorDataset(torch.randn(3200, 64), torch.randint(0, 10, (3200,)))
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, profiler=HPUProfiler("traces/")
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=64))


if __name__ == "__main__":
    main()
