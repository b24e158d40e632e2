"""Two ranks: `torchrun --nproc-per-node 2 ddp.py`. Each rank records; the last one prints the answer for both."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hpuprof


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(6400, 64), torch.randint(0, 10, (6400,)))
    loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
    for x, y in hpuprof.steps(loader, "traces/"):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
