"""The queue at each fetch: of workers that keep up, of workers that do not, and of a loader without any."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "the fits of these tests need lightning")

from recorder.fits import only
from recorder.forked import Programs

PROGRAM = """
import sys, time
import hpuprof, torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Iterator

batch_s, step_s, workers, slow_s = map(float, sys.argv[1:])

class Samples(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        time.sleep(slow_s if i % 2 else batch_s)
        return torch.zeros(4)

torchs = Iterator._next_data
loader = DataLoader(Samples(), batch_size=1, num_workers=int(workers))
with hpuprof.record("traces", wait=4, baseline_blocks=0, warmup=1, active=8) as recording:
    for batch in loader:
        time.sleep(step_s)
        batch.mm(batch.t())
        recording.step()
assert Iterator._next_data is torchs
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not tell the length of a queue")
@pytest.mark.parametrize(("batch_s", "step_s", "found"), [(0.0, 0.05, "never empty"), (0.12, 0.0, "always empty")])
def test_a_queue_says_whether_workers_keep_up(
    batch_s: float, step_s: float, found: str, tmp_path: Path, torch_program: Programs
):
    torch_program(tmp_path, PROGRAM, str(batch_s), str(step_s), "1", str(batch_s))
    queue = only(tmp_path)["hpuprof"]["loader_queue"]
    batches, under_way = queue["finished"], queue["under_way"]
    assert len(batches) == len(under_way) == len(queue["workers"]) == len(queue["waited"]) >= 7
    assert set(queue["workers"]) == {1}
    assert all(batches) if found == "never empty" else not any(batches)
    assert not any(under_way) if found == "never empty" else all(under_way)
    assert set(queue["waited"]) == ({0} if found == "never empty" else {1})


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not tell the length of a queue")
def test_a_queue_can_hold_batches_and_lack_the_next_one(tmp_path: Path, torch_program: Programs):
    """Of two workers one takes 0.2 s for a batch: each second fetch waits, while those of the other one are there."""
    torch_program(tmp_path, PROGRAM, "0", "0", "2", "0.2")
    queue = only(tmp_path)["hpuprof"]["loader_queue"]
    waited, finished = queue["waited"], queue["finished"]
    assert len(waited) == len(finished) >= 7
    assert 0.3 * len(waited) <= sum(waited) <= 0.7 * len(waited)
    assert any(had for had, late in zip(finished, waited, strict=True) if late)
    assert all(pair != (1, 1) for pair in pairwise(waited))


def test_a_loader_without_workers_has_no_queue(tmp_path: Path, torch_program: Programs):
    torch_program(tmp_path, PROGRAM, "0", "0", "0", "0")
    assert only(tmp_path)["hpuprof"]["loader_queue"] == {"finished": [], "under_way": [], "workers": [], "waited": []}
