"""Who may hold a job back, and by how much its collectives or its work are longer: worked by hand, times in ns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hpuprof.model.collective_calls import PackedCalls, unpack
from hpuprof.model.prediction import Interval
from hpuprof.ranks.lines import Key
from hpuprof.ranks.matching import Group, Kind, Matching, RankCalls
from hpuprof.ranks.parallelism import Use
from hpuprof.ranks.prices import Price, Priced, _cures, _longest, _pool, _saved, _spread
from hpuprof.ranks.suspects import OTHERS, Division, Suspect, divisions, excess, families, links, sets_of_ranks

CALLS = unpack(PackedCalls())


def ranks(count: int, hosts: str = "") -> list[RankCalls]:
    return [RankCalls(r, hosts[r] if hosts else None, 0, CALLS) for r in range(count)]


def group(*members: int, peers: bool = False, known: bool = True) -> Group:
    return Group("", "", members, known, peers)


def matched(groups: list[Group], transfers: dict[int, list[int]]) -> tuple[Matching, SimpleNamespace]:
    """Collectives of two members by group, each with its transfer; all members come at 0."""
    kinds = [Kind(g, "send_recv" if groups[g].peers else "all_reduce", 100, "float") for g in transfers]
    kind = np.repeat(np.arange(len(kinds)), [len(t) for t in transfers.values()])
    count, none = len(kind), np.zeros(2 * len(kind), dtype=np.int64)
    expected = np.full(count, 2)
    matching = Matching(groups, kinds, kind, kind, 2 * np.arange(count + 1), none, none, expected)
    every = np.ones(count, dtype=bool)
    end = np.repeat(np.concatenate(list(transfers.values())), 2)
    which = np.repeat(np.arange(count), 2)
    return matching, SimpleNamespace(end=end, latest=np.zeros(count, int), which=which, usable=every, related=every)


def named(found: list[Suspect]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(s.kind, s.name, s.ranks) for s in found]


def sets(groups: list[Group], who: list[RankCalls], family: list[int]) -> list[tuple[str, str, tuple[int, ...]]]:
    matching, _ = matched(groups, {g: [1] for g in range(len(groups))})
    return [one for alike in sets_of_ranks(who, matching, np.array(family)) for one in named(alike) if one[0] != OTHERS]


def test_a_host_is_a_suspect_unless_it_holds_one_rank_or_all():
    assert sets([group(0, 1, 2)], ranks(3, "aab"), [0]) == [("host", "a", (0, 1))]
    assert sets([group(0, 1, 2)], ranks(3, "aaa"), [0]) == []


def test_a_suspect_is_compared_with_all_that_is_alike_and_with_the_ranks_left_over():
    who, matching = ranks(5, "aabcc"), matched([group(0, 1), group(3, 4)], {0: [1], 1: [1]})[0]
    hosts, groups = sets_of_ranks(who[:5], matching, np.array([0, 1]))[:1], [("group", "0-1", (0, 1))]
    assert named(hosts[0]) == [("host", "a", (0, 1)), ("others", "b", (2,)), ("host", "c", (3, 4))]
    (alike,) = sets_of_ranks(ranks(5), matching, np.array([0, 0]))[:1]
    assert named(alike) == [*groups, ("group", "3-4", (3, 4)), ("others", "", (2,))]


def test_pipelines_of_one_length_have_stages():
    channels = [group(0, 2, peers=True), group(2, 4, peers=True), group(1, 3, peers=True), group(3, 5, peers=True)]
    stages = [("stage", "0", (0, 1)), ("stage", "1", (2, 3)), ("stage", "2", (4, 5))]
    assert sets(channels, ranks(6), [0] * 4) == stages
    assert sets(channels[:3], ranks(6), [0] * 3) == []


def test_groups_alike_have_places_unless_they_overlap():
    both = [("group", "0-1", (0, 1)), ("group", "2-3", (2, 3))]
    places = [("coordinate", "0 of 2 groups", (0, 2)), ("coordinate", "1 of 2 groups", (1, 3))]
    assert sets([group(0, 1), group(2, 3)], ranks(4), [0, 0]) == [*both, *places]
    assert sets([group(0, 1), group(2, 3)], ranks(4), [0, 1]) == both
    assert sets([group(0, 1), group(1, 2)], ranks(4), [0, 0]) == [("group", "0-1", (0, 1)), ("group", "1-2", (1, 2))]
    assert sets([group(0, 1, known=False)], ranks(4), [0]) == []


def test_a_family_is_of_one_size_role_and_traffic():
    groups = [group(0, 1), group(2, 3), group(0, 1, 2), group(0, 3, peers=True), group(1, 4, peers=True)]
    matching, _ = matched(groups, {g: [1] for g in range(5)})
    use = [Use("data", "", None, {"all_reduce": n}) for n in (10, 10, 10, 10, 99)]
    assert families(matching, use).tolist() == [0, 0, 1, 2, 2]
    use[1] = Use("data", "", None, {"all_reduce": 40})
    assert families(matching, use).tolist() == [0, 1, 2, 3, 3]


def slower(groups: list[Group], transfers: dict[int, list[int]], family: list[int]) -> dict[str, list[float]]:
    matching, timed = matched(groups, transfers)
    found = links(ranks(6), matching, timed, np.array(family))
    assert all(s.name == f"{s.ranks[0]}-{s.ranks[-1]}" for s in found)
    return {s.name: [by for _, by in s.slower] for s in found}


def test_a_link_is_compared_with_those_of_its_family_that_share_no_rank():
    """Of groups 0-1 and 2-3, the second takes three times as long; 1-2 shares ranks with both and has no sibling."""
    groups = [group(0, 1), group(2, 3), group(1, 2)]
    found = slower(groups, {0: [100] * 3, 1: [300, 300, 900], 2: [500] * 3}, [0, 0, 0])
    assert found == {"0-1": [pytest.approx(1 / 3)] * 3, "2-3": [3.0] * 3}
    assert slower(groups, {0: [100] * 3, 1: [300] * 3}, [0, 1, 2]) == {}
    assert slower(groups, {0: [100] * 3, 1: [300] * 2}, [0, 0, 0]) == {}, "two collectives have no median to speak of"


def test_both_ways_between_neighbors_are_one_link_of_a_pipeline():
    """Transfers 0-1 and 1-0 take 400, those of the next neighbors 100: neighbors are compared though they share 1."""
    groups = [group(0, 1, peers=True), group(1, 0, peers=True), group(1, 2, peers=True), group(3, 1, peers=True)]
    found = slower(groups, {0: [400] * 3, 1: [400] * 3, 2: [100] * 3, 3: [70] * 3}, [0, 1, 2, 3])
    assert found == {"0-1": [4.0] * 6, "1-2": [0.25] * 3}


def test_what_a_suspect_may_cost():
    transfer = np.array([300.0, 100.0, 50.0])
    assert excess(Suspect("link", "", (0, 1), ((0, 3.0), (1, 0.5))), transfer, np.zeros((2, 2))) == pytest.approx(200)
    work = np.array([[10.0, 5.0], [14.0, 5.0], [40.0, 1.0], [60.0, 2.0]])  # host 50 - 12, device 1.5 - 5
    assert excess(Suspect("host", "", (2, 3)), transfer, work) == 38.0


def test_a_cured_link_transfers_like_the_others_and_no_slower_than_it_did():
    line = SimpleNamespace(length=np.ones(4), moved=np.array([-1, 0, 1, 2]))
    (cured,) = _cures([line, line], Suspect("link", "", (1,), ((0, 4.0), (1, 0.5))), np.zeros(2))
    assert {r: by.tolist() for r, by in cured.items()} == {1: [1.0, 0.25, 1.0, 1.0]}


def test_a_donor_does_most_of_what_the_best_one_does_and_donors_stand_by_how_long_they_work():
    """Rank 0 does ten things; the others all, nine and eight of them."""
    lines = [SimpleNamespace(does=set(range(10)))] + [SimpleNamespace(does=set(range(n))) for n in (10, 9, 8)]
    rank = Suspect("rank", "0", (0,))
    assert _pool(lines, 0, rank.ranks, np.array([9.0, 7.0, 5.0, 1.0])) == [2, 1]
    assert _pool(lines, 0, (0, 1), np.array([9.0, 7.0, 5.0, 1.0])) == [2]


def test_the_error_of_a_replay_and_what_even_ranks_save():
    known = (("rank", 0.3), ("link", 0.6))
    prices = [Price(Suspect(kind, "", (0,)), Interval(low=0.0, median=mid, high=1.0), 1.0) for kind, mid in known]
    told = Priced(100, 200.0, 190.0, 152.0, None, prices, 5)
    assert (told.error, told.even) == (0.05, 0.3), "no part saves more; a link is no part"
    assert Priced(100, 200.0, 190.0, 95.0, None, prices, 5).even == 0.5
    assert Priced(100, 200.0, 190.0, 199.0, None, [], 5).even == 0.0


def test_a_price_is_the_mean_of_its_variants_between_the_least_and_the_most():
    """Two steps of 100 and 300; the first variant saves 10 and 30 of the mean 200, the second 30 and 50."""
    recorded, used = np.array([[[100.0], [300.0]]]), np.array([[True, True]])
    times = np.array([[[90.0, 70.0], [270.0, 250.0]]])
    saved, steps = _saved(times, recorded, used, noticed=0.1)
    spread = 0.1 / 2  # of savings of 10 % and 20 % by step: 0.1 / sqrt(2), over the root of two steps
    assert (saved.low, saved.median, saved.high) == pytest.approx((0.1 - spread, 0.15, 0.2 + spread))
    assert steps == 0.5
    # Beside a step of 95 and 275, of which the variants save 5 and 25, and 5 and 25.
    then, _ = _saved(times, np.array([[[95.0], [275.0]]]), used, 0.1, recorded)
    assert then.median == pytest.approx((5 + 5 + 25 + 25) / 4 / 200)


def test_stages_and_ranks_with_experts_divide_work():
    channels = [group(0, 2, peers=True), group(1, 3, peers=True), group(0, 1), group(2, 3), group(0, 1, 2, 3)]
    matching, _ = matched(channels, {g: [1] for g in range(5)})
    use = [Use(role, "", None, {}) for role in ("", "", "expert", "expert", "data")]
    found = divisions(ranks(4), matching, use)
    assert found == [
        Division("stages", (((0, 1), (2, 3)),)),
        Division("experts", (((0,), (1,)), ((2,), (3,)))),
    ]
    assert divisions(ranks(3), matching, use) == [Division("experts", (((0,), (1,)),))], "rank 3 is not traced"


def dividing(*of_step: float) -> SimpleNamespace:
    """A rank that works so long on the device in each step, 10 on the host, and takes part in a transfer."""
    steps = range(len(of_step))
    keys = {}
    for n in steps:
        keys[Key("device", n, "", "")] = np.array([2 * n])
        keys[Key("host", n, "", "")] = np.array([2 * n + 1])
    totals = {("device", n): of_step[n] for n in steps} | {("host", n): 10.0 for n in steps}
    moved = np.array([-1] * (2 * len(of_step)) + [0])
    return SimpleNamespace(length=np.ones(len(moved)), pieces=keys, totals=totals, moved=moved)


def test_work_divided_evenly_takes_each_part_to_the_mean_of_its_team():
    """Parts of 60 and 20 in each step: half of the difference to 40 leaves 50 and 30."""
    lines = [dividing(60.0, 60.0), dividing(20.0, 20.0)]
    stages = Division("stages", (((0,), (1,)),))
    by = _spread(lines, stages, 0.5)
    assert by[0].tolist() == pytest.approx([50 / 60] * 4 + [1.0]), "hosts launch as much less, transfers stay"
    assert by[1].tolist() == pytest.approx([30 / 20] * 4 + [1.0])
    assert _longest(lines, stages) == (0, pytest.approx(0.5))


def test_experts_are_evened_step_by_step_and_stages_in_all_steps_alike():
    lines = [dividing(60.0, 20.0), dividing(20.0, 60.0)]
    assert _longest(lines, Division("stages", (((0,), (1,)),)))[1] == 0.0
    experts = Division("experts", (((0,), (1,)),))
    assert _longest(lines, experts)[1] == pytest.approx(0.5)
    assert _spread(lines, experts, 1.0)[0].tolist() == pytest.approx([40 / 60] * 2 + [2.0] * 2 + [1.0])
    assert _spread(lines, Division("stages", (((0,), (1,)),)), 1.0)[0].tolist() == [1.0] * 5
