"""Recording with one line: `steps`, the callback, `hpuprof run`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpuprof.errors import ConfigError
from hpuprof.step_log_format import HEADER_BYTES, PROFILED, record_dtype

torch = pytest.importorskip("torch")

import hpuprof

pytestmark = pytest.mark.filterwarnings("ignore:hpuprof")
ONCE = {"wait": 1, "baseline_blocks": 0, "warmup": 1, "active": 3}


def rows_of(folder: Path) -> Any:
    (path,) = folder.glob("*.steps")
    return np.frombuffer(path.read_bytes()[HEADER_BYTES:], record_dtype())


def loader(batches: int) -> Any:
    return torch.utils.data.DataLoader(torch.randn(batches, 8), batch_size=1)


def test_steps_records_updates_and_prints_the_answer_once(tmp_path: Path, capsys: Any) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(hpuprof.steps(loader(60), tmp_path, accumulate=4, **ONCE)):
        model(batch).sum().backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    rows = rows_of(tmp_path)
    assert rows["batches"].tolist() == [4] * 15
    assert (rows["flags"] & PROFILED).sum() == 5  # warm-up, window, and the step that writes it
    (trace,) = tmp_path.glob("*/*.json.gz")
    assert hpuprof.analyze(trace, cache="off").data.files[0].steps_total == 3
    said = capsys.readouterr()
    assert said.err.count("Run: 15 steps") == 1
    assert not said.out


class Writer:
    """Has the interface of TensorBoard's SummaryWriter that is asked for."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        assert isinstance(scalar_value, float)
        assert global_step == 61, "steps that have begun"
        self.values[tag] = scalar_value


class OfLightning:
    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        assert step == 61
        self.values = metrics


def test_loggers_get_what_the_answer_says(tmp_path: Path) -> None:
    writer, ours = Writer(), OfLightning()
    model = torch.nn.Linear(8, 1)
    for batch in hpuprof.steps(loader(60), tmp_path, loggers=[writer, ours], **ONCE):
        model(batch).sum().backward()
    assert writer.values == ours.values
    (run,) = hpuprof.analyze(tmp_path, cache="off").data.run_steps
    assert writer.values["hpuprof/run_step_p50_ns"] == run.step_p50_ns
    assert writer.values["hpuprof/step_time_p50_ns"] > 0
    with pytest.raises(ConfigError, match="loggers has a int"):
        hpuprof.record(tmp_path, loggers=[3])


def test_a_loop_left_early_ends_the_recording(tmp_path: Path) -> None:
    before = torch.autograd.backward
    for i, _ in enumerate(hpuprof.steps(loader(60), tmp_path, steps_only=True, analyze=False)):
        if i == 9:
            break
    assert torch.autograd.backward is before
    assert len(rows_of(tmp_path)) == 9


class Trainer:
    """Calls a callback in the order of Hugging Face's Trainer: batches of an update are fetched before it begins."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def call(self, event: str) -> None:
        getattr(self.callback, event)(None, None, None, model=None)

    def train(self, updates: int, *, fails_at: int = -1) -> None:
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.call("on_init_end")
        self.call("on_train_begin")
        self.call("on_epoch_begin")
        batches = iter(loader(2 * updates))
        for update in range(updates):
            samples = [next(batches), next(batches)]
            self.call("on_step_begin")
            if update == fails_at:
                raise ValueError("mine")
            for sample in samples:
                model(sample).sum().backward()
                self.call("on_substep_end")
            optimizer.step()
            optimizer.zero_grad()
            self.call("on_step_end")
            if update % 10 == 9:
                with torch.no_grad():
                    for sample in loader(200):
                        model(sample)
                        self.call("on_prediction_step")
                self.call("on_evaluate")
        self.call("on_train_end")


def test_the_callback_logs_updates_and_sets_evaluation_aside(tmp_path: Path) -> None:
    Trainer(hpuprof.HFCallback(tmp_path, analyze=False, **ONCE)).train(30)
    rows = rows_of(tmp_path)
    assert len(rows) == 30
    assert np.flatnonzero(rows["other_ns"]).tolist() == [9, 19, 29]
    assert rows["input_ns"][9] < rows["other_ns"][9]
    assert (rows["backward_ns"] > 0).all()
    assert len(list(tmp_path.glob("*/*.json.gz"))) == 1


def test_an_exception_in_train_is_ended_by_the_next_one(tmp_path: Path) -> None:
    before = torch.autograd.backward
    trainer = Trainer(hpuprof.HFCallback(tmp_path, analyze=False, steps_only=True))
    with pytest.raises(ValueError, match="mine"):
        trainer.train(10, fails_at=5)
    trainer.train(10)
    assert torch.autograd.backward is before
    logs = sorted(tmp_path.glob("*.steps"))
    assert [b'"ended": "failed"' in log.read_bytes()[:HEADER_BYTES] for log in logs] == [True, False]


def test_wrong_options_of_the_callback_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(hpuprof.ConfigError, match="activ"):
        hpuprof.HFCallback(tmp_path, activ=3)


def test_with_the_trainer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    )
    data = [{"input_ids": torch.arange(8), "labels": torch.tensor(0)} for _ in range(64)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"),
        max_steps=12,
        gradient_accumulation_steps=2,
        report_to=[],
        per_device_train_batch_size=2,
        dataloader_pin_memory=False,
        save_strategy="no",
    )
    callback = hpuprof.HFCallback(tmp_path, analyze=False, **ONCE)
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    assert len(rows_of(tmp_path)) == 12


SCRIPT = """
import os, sys
assert sys.argv[1:] == ["--lr", "3"], sys.argv
assert "torch" not in sys.modules and "OPENBLAS_NUM_THREADS" not in os.environ
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, batch in enumerate(torch.utils.data.DataLoader(torch.randn(60, 8), batch_size=1)):
    model(batch).sum().backward()
    if i % 2:
        optimizer.step()
        optimizer.zero_grad()
    if i == 40 and {fails}: raise ValueError("mine")
print("done")
sys.exit({code})
"""


@pytest.mark.parametrize(
    ("form", "fails", "code"),
    [
        (["train.py"], False, 0),
        (["train.py"], True, 1),
        (["-m", "train"], False, 5),
        (["-m", "train"], True, 1),
    ],
)
def test_run_records_a_script_that_knows_nothing(tmp_path: Path, fails: bool, code: int, form: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(fails=fails, code=code), encoding="utf-8")
    environ = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    ended = subprocess.run(
        [sys.executable, "-m", "hpuprof", "run", "--steps-only", "-o", "out", *form, "--lr", "3"],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ("" if fails else "done\n")
    assert ("ValueError: mine" in ended.stderr) == fails
    rows = rows_of(tmp_path / "out")
    assert len(rows) == (20 if fails else 30)
    assert (rows["optimizer_ns"][1:] > 0).all()
    assert ("hpuprof: " in ended.stderr) == (code == 0)
