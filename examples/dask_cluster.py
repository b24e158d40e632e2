"""Many ranks: read the traces with the workers of a Dask cluster, here two local ones."""

import sys

from distributed import Client, LocalCluster

import hpuprof


def main(traces: str) -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        report = hpuprof.analyze(traces, executor=client)
    print(report.headline.sentence)
    print(report.steps[["rank", "step", "wall_ns", "device_busy_ns"]].groupby("rank").median(numeric_only=True))


if __name__ == "__main__":
    main(sys.argv[1])
