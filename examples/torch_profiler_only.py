"""Code that already uses torch.profiler needs no change; these settings let hpuprof say most."""

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

import hpuprof


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=5, warmup=2, active=10),  # 8 steps or more: medians, noise
        on_trace_ready=tensorboard_trace_handler("traces/"),
        record_shapes=True,  # changing shapes, FLOPs
    ) as profiler:
        for _ in range(20):
            model(torch.randn(64, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()  # marks the steps
    print(hpuprof.analyze("traces/").headline.sentence)


if __name__ == "__main__":
    main()
