"""Whole programs recorded with torch.profiler: what the vendor's document says of its examples, and what users run into."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import needs
import pytest

torch = needs.module("torch", "torch")

from graph_mode.recording import codes, record
from torch import nn
from torch.utils.checkpoint import checkpoint

from hpuprof.model.partial import RankPartial
from hpuprof.model.tables import ModuleRow, ObstacleRow


def module(part: RankPartial, name: str) -> ModuleRow:
    return next(m for m in part.modules if m.module == name)


def obstacle(part: RankPartial, code: str) -> ObstacleRow:
    rows = [o for o in part.obstacles if o.code == code]
    assert len(rows) == 1, [(o.module, o.where, o.text) for o in rows]
    return rows[0]


# ------------------------------------------------------------------------- examples of Habana's "HPU Graphs for Training"


def test_the_document_s_dynamic_control_flow(tmp_path: Path):
    """One of two modules by random.random(): each module gets a graph of its own, the decision stays in Python."""
    module1, module2, module3 = nn.Linear(784, 128), nn.Linear(128, 100), nn.Linear(128, 50)
    params = itertools.chain(module1.parameters(), module2.parameters(), module3.parameters())
    optimizer = torch.optim.Adadelta(params, lr=0.1)
    data = torch.rand(5, 784)
    coins = random.Random(3)
    taken: list[int] = []

    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        tmp = module1(data)
        if coins.random() > 0.5:
            taken.append(2)
            tmp = module2(tmp)
        else:
            taken.append(3)
            tmp = module3(tmp)
        loss = torch.abs(tmp.mean() - data.mean())
        loss.backward()
        optimizer.step()

    part = record(tmp_path, step, steps=14)
    fork = obstacle(part, "HP309")
    # The window cuts the first and last of the 14 steps.
    counts = sorted((taken[2:-1].count(2), taken[2:-1].count(3)), reverse=True)
    assert (fork.module, fork.severity) == ("(step)", "cut")
    assert fork.text.startswith("after Linear_0: Linear_")
    assert f"in {counts[0]} steps" in fork.text
    for name in ("Linear_0", "Linear_1", "Linear_2"):
        assert module(part, name).capturable == "yes"
    assert module(part, "(step)").capturable == "no"


def test_the_document_s_dynamic_operator(tmp_path: Path):
    """Boolean indexing between two modules: "the static modules are placed into separate ModuleCacher, the dynamic op is left out"."""
    module1, module2 = nn.Linear(10, 3), nn.ReLU()
    optimizer = torch.optim.Adadelta(module1.parameters(), lr=0.1)
    torch.manual_seed(1)

    def step(i: int) -> None:
        data = torch.randn(5, 10)
        optimizer.zero_grad(set_to_none=True)
        tmp = module1(data)
        tmp = tmp[torch.where(tmp > 0)]
        tmp = module2(tmp)
        loss = torch.abs(tmp.mean() - 0.5)
        loss.backward()
        optimizer.step()

    part = record(tmp_path, step, steps=8)
    where = obstacle(part, "HP301")
    assert (where.module, where.where, where.count, where.severity) == (
        "(step)",
        "between modules, aten::where",
        8,
        "cut",
    )
    assert module(part, "Linear_0").capturable == "yes"
    assert (module(part, "Linear_0").signatures, module(part, "Linear_0").max_graphs) == (1, 1)
    # What comes out of the operator has another length nearly every time: the module behind it needs a graph for each.
    assert (module(part, "ReLU_0").signatures or 0) > 2
    assert obstacle(part, "HP307").module == "ReLU_0"


def test_the_document_s_mnist_loop_has_only_notices(tmp_path: Path):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.dropout = nn.Linear(784, 128), nn.Linear(128, 10), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.dropout(torch.relu(self.fc1(torch.flatten(x, 1))))
            return torch.log_softmax(self.fc2(x), dim=1)

    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    data, target = torch.randn(20, 1, 28, 28), torch.randint(0, 10, (20,))

    def step(i: int) -> None:
        optimizer.zero_grad()
        nn.functional.nll_loss(model(data), target).backward()
        optimizer.step()

    part = record(tmp_path, step)
    assert codes(part) == {"HP314": "harmless"}
    net = module(part, "Net_0")
    assert (net.capturable, net.calls_per_step, net.signatures, net.max_graphs) == ("yes", 1.0, 1, 1)
    assert [m.module_path for m in part.modules if m.depth == 1] != []
    assert {m.module_path for m in part.modules if m.depth == 1} == {
        "Net_0/Linear_0",
        "Net_0/Linear_1",
        "Net_0/Dropout_0",
    }


# ------------------------------------------------------------------------------------------------------------------ shapes


@pytest.mark.parametrize("lengths", [[64, 128, 64, 128, 256, 64, 128, 64]])
def test_lengths_that_change(tmp_path: Path, lengths: list[int]):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    part = record(tmp_path, lambda i: model(torch.zeros(2, lengths[i - 1], 8)).sum().backward(), steps=len(lengths))
    row = obstacle(part, "HP307")
    assert (row.module, row.severity) == ("Sequential_0", "periodic")
    assert "3 signatures in 8 calls: dimension 1 of input 0 of aten::linear (64, 128, 256)" in row.text
    whole = module(part, "Sequential_0")
    # In order of arrival: 64 four times, 128 three times, 256 once; 95 % of eight calls need all three.
    assert (whole.signatures, whole.max_graphs) == (3, 3)
    assert whole.capturable == "with changes"
    assert module(part, "ReLU_0").changes == ["HP307"]
    assert [(s.signature, s.calls) for s in part.shapes] == [
        (f"aten::linear 2×{length}×8", calls) for length, calls in ((64, 4), (128, 3), (256, 1))
    ]
    assert [s.input_bytes for s in part.shapes] == [2 * n * 8 * 4 for n in (64, 128, 256)]


def test_a_last_batch_that_is_smaller(tmp_path: Path):
    model = nn.Linear(4, 4)
    part = record(tmp_path, lambda i: model(torch.zeros(32 if i % 4 else 7, 4)).sum().backward(), steps=12)
    row = obstacle(part, "HP308")
    assert (row.module, row.severity, row.count) == ("Linear_0", "periodic", 3)
    assert "batches of 32, the last one 7" in row.text
    assert "drop_last=True" in row.fix


def test_without_shapes_nothing_is_said_of_them(tmp_path: Path):
    model = nn.Linear(4, 4)
    part = record(tmp_path, lambda i: model(torch.zeros(4 + i, 4)).sum().backward(), shapes=False)
    row = module(part, "Linear_0")
    assert (row.signatures, row.max_graphs, row.memory_bytes) == (None, None, None)
    assert {"HP307", "HP313"} <= set(row.not_checked)
    assert codes(part) == {}


# ------------------------------------------------------------------------------------------------------------ control flow


class Branching(nn.Module):
    """Runs `often` or `rarely` as `decide` says."""

    def __init__(self, decide) -> None:
        super().__init__()
        self.decide, self.calls = decide, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.tanh(x) if self.decide(self.calls, x) else torch.sigmoid(x) + 1


def test_data_decides(tmp_path: Path):
    values = iter([0.0, 1, -1, 1, 1, -1, 1, 1, -1, -1, 1, 1])
    model = Branching(lambda n, x: x.sum() > 0)
    part = record(tmp_path, lambda i: model(torch.full((3,), next(values))), steps=10)
    fork = obstacle(part, "HP309")
    assert (fork.module, fork.severity, fork.count) == ("Branching_0", "blocker", 4)
    assert fork.python_line is not None
    assert "forward" in fork.python_line
    assert obstacle(part, "HP302").where == "forward, aten::is_nonzero"


def test_a_counter_decides(tmp_path: Path):
    model = Branching(lambda n, x: n % 4)
    part = record(tmp_path, lambda i: model(torch.ones(3)), steps=12)
    fork = obstacle(part, "HP309")
    assert (fork.severity, fork.count) == ("periodic", 3)
    assert "every 4 calls" in fork.text
    assert module(part, "Branching_0").capturable == "with changes"


def test_the_program_decides(tmp_path: Path):
    coins = random.Random(5)
    model = Branching(lambda n, x: coins.random() > 0.4)
    fork = obstacle(record(tmp_path, lambda i: model(torch.ones(3)), steps=12), "HP309")
    assert fork.severity == "blocker"


# ----------------------------------------------------------------------------------------------- reads, scalars, optimizer


def test_a_loss_that_is_logged_every_few_steps(tmp_path: Path):
    model = nn.Linear(4, 4)

    def step(i: int) -> None:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        if i % 3 == 0:
            loss.item()

    part = record(tmp_path, step, steps=12)
    row = obstacle(part, "HP302")
    assert (row.module, row.severity, row.steps) == ("(step)", "periodic", 4)
    assert "every 3 steps" in row.text
    assert module(part, "(step)").capturable == "with changes"
    assert module(part, "Linear_0").capturable == "yes"


def test_a_loss_read_in_every_step_can_be_cut_off(tmp_path: Path):
    model = nn.Linear(4, 4)

    def step(i: int) -> None:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        loss.item()

    part = record(tmp_path, step)
    assert (obstacle(part, "HP302").severity, obstacle(part, "HP302").per_step) == ("cut", 1.0)
    assert (module(part, "(step)").capturable, module(part, "(step)").changes) == ("with changes", ["HP302"])


def test_a_number_that_grows_with_the_step(tmp_path: Path):
    class Scheduled(nn.Module):
        step = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            return torch.add(x, x, alpha=1.0 / self.step)

    model = Scheduled()
    row = obstacle(record(tmp_path, lambda i: model(torch.ones(3))), "HP313")
    assert (row.module, row.where, row.severity, row.count) == ("Scheduled_0", "forward, aten::add", "blocker", 6)
    assert "0.5, 0.333333 …" in row.text


def test_adam_with_counters_on_the_cpu(tmp_path: Path):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step(i: int) -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    part = record(tmp_path, step)
    found = codes(part, module="(optimizer)")
    assert found == {"HP320": "blocker", "HP313": "blocker"}
    assert module(part, "(optimizer)").blockers == ["HP313", "HP320"]
    assert module(part, "Linear_0").capturable == "yes"


def test_gradients_that_are_accumulated(tmp_path: Path):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(i: int) -> None:
        model(torch.ones(2, 4)).sum().backward()
        if i % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

    row = obstacle(record(tmp_path, step, steps=12), "HP316")
    assert (row.severity, row.steps) == ("periodic", 9)
    assert "9 of 12 steps went backward without an optimizer step" in row.text


def test_activation_checkpointing(tmp_path: Path):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.inner, x, use_reentrant=False))

    model = Net()
    x = torch.ones(2, 4, requires_grad=True)
    part = record(tmp_path, lambda i: model(x).sum().backward())
    row = obstacle(part, "HP317")
    assert (row.code, row.count) == ("HP317", 6)
    assert module(part, "Linear_0").calls_per_step == 1.0  # recomputation is no call


def test_many_equal_blocks_are_one_row(tmp_path: Path):
    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x[x > 0].sum()

    model = nn.Sequential(*(Block() for _ in range(5)))
    row = obstacle(record(tmp_path, lambda i: model(torch.ones(3)), steps=3), "HP301")
    assert row.module == "Block (5 modules)"
    assert row.modules == [f"Block_{i}" for i in range(5)]
    assert row.count == 15


def test_the_input_of_an_embedding_is_not_its_table(tmp_path: Path):
    model = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 2))
    part = record(tmp_path, lambda i: model(torch.zeros(4, 16 * i, dtype=torch.long)).sum().backward(), steps=3)
    assert [s.input_bytes for s in part.shapes] == [4 * 16 * i * 8 for i in (1, 2, 3)]


def test_taking_a_batch_by_its_number_is_no_obstacle(tmp_path: Path):
    model, data = nn.Linear(4, 4), torch.zeros(64, 4)
    part = record(tmp_path, lambda i: model(data[4 * i : 4 * i + 4]).sum().backward())
    assert codes(part) == {}
