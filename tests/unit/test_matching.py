"""Which calls are one collective: by number, by step, with lost rows, across windows that differ."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.model.collective_calls import ACTIVITIES_BEFORE, CallGroup, CallKind, Calls
from hpuprof.ranks.matching import RankCalls, match

MS = 1_000_000


def rank(
    number: int,
    steps: list[list[tuple[str, int]]],
    *,
    labels: tuple[str, ...] | None = None,
    sequence: list[int] | None = None,
    group: CallGroup | None = None,
    shift: int = 0,
    first: int = 0,
) -> RankCalls:
    """Return a rank whose steps of 100 ms hold calls (operation, end in ms); 1 ms each, 8 bytes."""
    ops = sorted({op for step in steps for op, _ in step})
    kinds = []
    for op in ops:
        name, _, peer = op.partition(":")
        kinds.append(
            CallKind(
                group=0,
                op=name,
                bytes=8,
                dtype="float",
                source=int(peer) if name == "recv" else -1,
                target=int(peer) if name == "send" else -1,
            )
        )
    flat = [(i, op, i * 100 + end) for i, step in enumerate(steps) for op, end in step]
    end = np.array([e for _, _, e in flat], dtype=np.int64) * MS + shift
    zeros = np.zeros(len(flat), dtype=np.int64)
    calls = Calls(
        groups=[group or CallGroup(name="0", ranks=(0, 1, 2), size=3)],
        kinds=kinds,
        timed=True,
        kind=np.array([ops.index(op) for _, op, _ in flat], dtype=np.int64),
        lane=zeros,
        step=np.array([i for i, _, _ in flat], dtype=np.int64),
        sequence=np.array(sequence, dtype=np.int64) if sequence else zeros - 1,
        start=end - MS,
        end=end,
        ready=end - MS,
        exposed=zeros,
        tail=zeros,
        activity_before=dict.fromkeys(ACTIVITIES_BEFORE, zeros),
    )
    names = tuple(f"ProfilerStep#{first + i}" for i in range(len(steps))) if labels is None else labels
    return RankCalls(
        number, "h", 0, calls, names, steps=tuple((100 * MS * i, 100 * MS, True) for i in range(len(steps)))
    )


def members(ranks):
    """Return each collective as {rank: end in ms within its step}."""
    found = match(ranks)
    out = []
    for i in range(len(found)):
        inside = slice(found.first[i], found.first[i + 1])
        out.append(
            {
                ranks[r].rank: int(ranks[r].calls.end[c] // MS)
                for r, c in zip(found.rank[inside].tolist(), found.call[inside].tolist(), strict=True)
            }
        )
    return found, out


STEP = [("all_reduce", 10), ("all_reduce", 20), ("all_gather", 40), ("all_reduce", 45)]


def test_equal_steps_match_position_by_position():
    found, got = members([rank(r, [STEP, STEP]) for r in range(3)])
    assert got == [dict.fromkeys(range(3), e) for e in (10, 20, 40, 45, 110, 120, 140, 145)]
    assert found.complete.all()
    assert not found.mismatched


def test_a_lost_row_shifts_nothing():
    """The second of two equal calls is gone: kinds alone cannot say which of the two it was, times do."""
    lossy = [STEP[0], *STEP[2:]]
    found, got = members([rank(0, [STEP]), rank(1, [lossy]), rank(2, [STEP])])
    assert got == [{0: 10, 1: 10, 2: 10}, {0: 20, 2: 20}, {0: 40, 1: 40, 2: 40}, {0: 45, 1: 45, 2: 45}]
    assert found.complete.tolist() == [True, False, True, True]
    assert not found.mismatched


def test_clocks_of_hosts_do_not_enter():
    lossy = STEP[1:]
    _, got = members([rank(0, [STEP]), rank(1, [lossy], shift=40 * MS), rank(2, [STEP], shift=-7 * MS)])
    assert [sorted(g) for g in got] == [[0, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]]


def test_every_rank_may_lose_another_row():
    lossy = [[c for i, c in enumerate(STEP) if i != r] for r in range(3)]
    _, got = members([rank(r, [lossy[r]]) for r in range(3)])
    assert got == [{1: 10, 2: 10}, {0: 20, 2: 20}, {0: 40, 1: 40}, {0: 45, 1: 45, 2: 45}]


def test_windows_that_begin_at_different_steps_match_by_label():
    _, got = members([rank(0, [STEP, STEP, STEP], first=3), rank(1, [STEP, STEP], first=4), rank(2, [STEP], first=5)])
    assert [sorted(g) for g in got] == [[0]] * 4 + [[0, 1]] * 4 + [[0, 1, 2]] * 4


def test_numbers_win_over_positions():
    ranks = [
        rank(0, [STEP[:2]], sequence=[7, 8]),
        rank(1, [STEP[:2]], sequence=[8, 9]),
        rank(2, [STEP[:2]], sequence=[7, 9]),
    ]
    _, got = members(ranks)
    assert [sorted(g) for g in got] == [[0, 2], [0, 1], [1, 2]]


def test_different_operations_at_one_number_are_a_mismatch():
    ranks = [rank(r, [[("all_reduce" if r else "all_gather", 10)]], sequence=[5]) for r in range(3)]
    assert match(ranks).mismatched == [(0, 1)]


def test_a_rank_that_runs_something_else_is_a_mismatch_without_numbers():
    other = [*STEP[:2], ("broadcast", 40), STEP[3]]
    assert match([rank(0, [STEP, STEP]), rank(1, [STEP, other]), rank(2, [STEP, STEP])]).mismatched == [(0, 1)]


def test_a_shorter_step_is_no_mismatch():
    assert not match([rank(0, [STEP]), rank(1, [STEP[:2]]), rank(2, [STEP])]).mismatched


def test_sends_pair_with_receives():
    ranks = [
        rank(0, [[("send:1", 10), ("send:1", 20)]]),
        rank(1, [[("recv:0", 11), ("recv:0", 21), ("send:2", 30)]]),
        rank(2, [[("recv:1", 31)]]),
    ]
    found, got = members(ranks)
    assert got == [{0: 10, 1: 11}, {0: 20, 1: 21}, {1: 30, 2: 31}]
    assert [g.ranks for g in found.groups] == [(0, 1), (1, 2)]
    assert found.complete.all()


def test_groups_of_one_name_and_different_members_stay_apart():
    pairs = [CallGroup(name="1", ranks=(0, 1), size=2), CallGroup(name="1", ranks=(2, 3), size=2)]
    _, got = members([rank(r, [STEP[:1]], group=pairs[r // 2]) for r in range(4)])
    assert [sorted(g) for g in got] == [[0, 1], [2, 3]]


def test_a_group_that_the_trace_does_not_name_is_everybody():
    found, got = members([rank(r, [STEP[:1]], group=CallGroup()) for r in range(3)])
    assert [sorted(g) for g in got] == [[0, 1, 2]]
    assert not found.groups[0].known


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=2, max_size=5),
    st.lists(st.integers(-50, 50), min_size=5, max_size=5),
)
def test_lost_rows_never_join_different_collectives(kept, shifts):
    """Ends differ by at least 7 ms; whatever is lost, members of one collective end together on the true clock."""
    step = [("all_reduce", 3), ("all_reduce", 17), ("all_gather", 24), ("all_reduce", 38)] * 1
    steps = [step, [(op, e + 5) for op, e in step]]
    ranks = []
    for number, keep in enumerate(kept):
        mine = [[c for j, c in enumerate(s) if keep[4 * i + j]] for i, s in enumerate(steps)]
        if any(mine):
            ranks.append(
                rank(number, mine, shift=shifts[number] * MS, group=CallGroup(name="0", ranks=tuple(range(5))))
            )
    found = match(ranks)
    # Where two ranks share at least two calls of a step their shift is told by them; with one call, any place fits.
    for i in range(len(found)):
        inside = slice(found.first[i], found.first[i + 1])
        codes = {
            ranks[r].calls.kinds[int(ranks[r].calls.kind[c])].op
            for r, c in zip(found.rank[inside].tolist(), found.call[inside].tolist(), strict=True)
        }
        steps_of = {
            int(ranks[r].calls.step[c])
            for r, c in zip(found.rank[inside].tolist(), found.call[inside].tolist(), strict=True)
        }
        assert len(codes) == 1
        assert len(steps_of) == 1
        assert len(set(found.rank[inside].tolist())) == inside.stop - inside.start
    assert int(found.count.sum()) == sum(len(r.calls) for r in ranks)
