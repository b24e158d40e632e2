"""Generated steps of lazy mode on HPU, for tests that are worked by hand."""

from __future__ import annotations

from typing import Any

from builder import TraceBuilder

LAUNCHER, BRIDGE, LAUNCHER_BRIDGE = (100, 102), (20_100, 100), (20_100, 102)
LATENCY, GAP, BUILD, REST = 5, 2, 10, 10
NAMES = ("addmm", "add", "mul")


def lazy(
    steps: int = 6,
    *,
    host: tuple[float, ...] = (40, 30),
    launch: float = 20,
    work: tuple[float, ...] = (30, 10),
    wait: bool = False,
    wait_in: tuple[int, ...] = (),
    recipes: tuple[int, ...] = (1, 2),
    children: bool = False,
    queue: int = 0,
    rest: tuple[float, ...] = (),
    item: bool = False,
    updates: int = 1,
    optimizer: int = 1,
    dtype: str = "",
    before: float = 0,
    each: float = 0,
) -> TraceBuilder:
    """A lazy run in µs. Of each recipe: two operators in `host`, a flush of 10, `launch` on the launch thread, two rows in `work`.

    A recipe starts 5 after its launch or 2 after the recipe before. `wait`: the step ends by waiting for its last recipe, which it sees
    3 later; `wait_in`: only these steps do. Each step ends with 10 of host work. The second recipe's operators are the optimizer's; `children`: the first
    has four, of two modules in a net. `queue`: as many recipes fit on the device; a launch into a full one waits. `rest`: the host work at the
    end of each step. `item`: the wait lies in aten::item; `updates`: the optimizer has so many times two operators, its recipes from `optimizer` on; `dtype`: of device rows.
    `before`: what a flush does before it waits for the launch thread; `each`: what it takes for each operator.
    """
    out = TraceBuilder()
    for pid, name in ((100, "python"), (20_100, "Bridge Logs")):
        out.event(ph="M", name="process_name", pid=pid, tid=0, ts=0.0, args={"name": name})
    typed: dict[str, Any] = {"dataType": dtype} if dtype else {}
    now = thread = device = 0.0
    ends: list[float] = []
    for step in range(steps):
        begin = now
        for k, (taken, busy, recipe) in enumerate(zip(host, work, recipes, strict=True)):
            first = now
            count = 4 if children and not k else 2 * updates if k else 2
            for _ in range(count):
                out.host(f"aten::{NAMES[k]}", now, taken / count)
                out.host(f"{NAMES[k]}_hpu_lazy", now + 1, taken / count - 2, cat="Runtime", thread=BRIDGE)
                now += taken / count
            if k >= optimizer:
                out.annotation("Optimizer.step#SGD.step", first, taken)
            elif children:
                out.host("nn.Module: Net_0", first, taken, cat="python_function")
                out.host("nn.Module: Block_0", first, taken / 2, cat="python_function")
                out.host("nn.Module: Block_1", first + taken / 2, taken / 2, cat="python_function")
            flush, now = now, max(now + before, thread) + BUILD + each * count
            out.host("SyncTensorsGraphInternal", flush, now - flush, cat="Runtime", thread=BRIDGE)
            called = max(now, thread)
            thread = max(called, ends[-queue] if queue and len(ends) >= queue else 0) + launch
            out.host("LaunchSyncTensorsGraph", called, thread - called, cat="Runtime", thread=LAUNCHER_BRIDGE)
            start = max(thread + LATENCY, device + GAP)
            for half in range(2):
                out.lane(f"op{half}", start + half * busy / 2, busy / 2, engine="MME", recipeId=recipe, **typed)
            device = start + busy
            ends.append(device)
        if wait or step in wait_in:
            back = max(now, device) + 3
            if item:
                out.host("aten::item", now, back - now + 1)
            out.host("synEventSynchronize", now, back - now, cat="Runtime", thread=BRIDGE)
            now = back + item
        now += rest[step] if rest else REST
        out.step(step, begin, now - begin)
    return out
