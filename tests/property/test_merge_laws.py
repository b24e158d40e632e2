"""Laws of combining partial results: order changes nothing, other ranks change no rank's numbers, cuts change no number."""

import tracemalloc
from functools import lru_cache
from pathlib import Path

import msgspec
from builder import reduce_file
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.ingest.discover import Identity, discover
from hpuprof.model.partial import FailedFile
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.tables import MemoryPoint, MemoryRow, StepWaitRow
from hpuprof.render.json import dumps
from hpuprof.report.combine import combine
from hpuprof.report.model import Report
from hpuprof.report.row_limits import cut_to_ranks, own_work_ns, shown_rows

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


@lru_cache(maxsize=1)
def partials():
    return [reduce_file(f) for f in discover([SAMPLES / "hpu_g3_lazy_8_ranks"])[0]]


@lru_cache(maxsize=1)
def results():
    found = {p.file.path: PackedPartial.of(p) for p in partials()}
    found["broken.json"] = FailedFile(path="broken.json", message="no trace", offset=3)
    return found


def report(order, **options):
    number = {place: i for i, place in enumerate(sorted(results()))}
    identities = [Identity(number[place]) for place in order]
    return dumps(Report(combine(identities, [results()[place] for place in order], [], version="1", **options)))


@settings(max_examples=8)
@given(st.permutations(range(9)), st.sampled_from([0, 50, 200]))
def test_the_order_of_files_changes_no_byte_of_the_report(order, limit):
    places = sorted(results())
    assert report([places[i] for i in order], table_rows=limit) == report(places, table_rows=limit)


@settings(max_examples=6)
@given(st.sets(st.integers(0, 7), min_size=1))
def test_other_ranks_change_no_ranks_numbers(ranks):
    def of(chosen):
        pairs = sorted((i, partials()[i]) for i in chosen)
        return combine([Identity(i) for i, _ in pairs], [PackedPartial.of(p) for _, p in pairs], [], version="1")

    some, every = of(ranks), of(range(8))
    for name in (
        "ranks",
        "files",
        "steps",
        "gap_causes",
        "gaps",
        "engines",
        "operators",
        "kernels",
        "launches",
        "queue",
    ):
        assert getattr(some, name) == [row for row in getattr(every, name) if row.rank in ranks]


# --------------------------------------------------------------------------------------------------------- bounded tables


def loaded(rank, walls, exposed=0, rows=3):
    """A partial with steps of the given lengths and `rows` kernels."""
    base = partials()[0]
    step = next(s for s in base.steps if s.used)
    steps = [
        msgspec.structs.replace(step, step=i, wall_ns=w, exposed_communication_ns=exposed, used=True)
        for i, w in enumerate(walls)
    ]
    kernels = [msgspec.structs.replace(base.kernels[0], name=f"k{i}") for i in range(rows)]
    return msgspec.structs.replace(
        base, file=msgspec.structs.replace(base.file, path=f"{rank}.json"), steps=steps, kernels=kernels
    )


def test_own_work_is_the_median_of_wall_less_exposed_communication():
    assert own_work_ns(loaded(0, [100, 900, 300], exposed=50)) == 250
    assert own_work_ns(msgspec.structs.replace(loaded(0, [1]), steps=[])) == 0


def test_long_tables_show_the_lowest_rank_and_those_with_the_most_own_work():
    done = [
        (Identity(3), loaded(3, [100])),
        (Identity(4), loaded(4, [500])),
        (Identity(5), loaded(5, [900], exposed=600)),
        (Identity(6), loaded(6, [400])),
    ]
    shown, cut = shown_rows(done, ["kernels", "steps"], 7)
    assert shown == {"kernels": {0, 1, 3}, "steps": {0, 1, 2, 3}}, "9 rows pass the limit by less than a file's"
    assert cut == {"kernels": (3, 4)}
    assert shown_rows(done, ["kernels"], 6)[0]["kernels"] == {0, 1}
    assert shown_rows(done, ["kernels"], 12) == ({"kernels": {0, 1, 2, 3}}, {})
    assert shown_rows(done, ["kernels"], 0) == ({"kernels": {0, 1, 2, 3}}, {})


def test_memory_curves_show_the_lowest_rank_and_those_with_the_largest_peaks():
    def held(rank, work, peak):
        memory = MemoryRow(space="device", samples=2, peak_allocated_bytes=peak, peak_reserved_bytes=None, allocated_bytes=0, freed_bytes=0)  # fmt: skip
        points = [MemoryPoint(space="device", start_ns=i, allocated_bytes=peak, reserved_bytes=None) for i in range(3)]
        return msgspec.structs.replace(loaded(rank, [work]), memory=[memory], memory_points=points)

    done = [(Identity(i), held(i, work, peak)) for i, work, peak in ((0, 1, 5), (1, 900, 10), (2, 100, 30), (3, 200, None))]  # fmt: skip
    shown, cut = shown_rows(done, ["memory_points", "kernels"], 6)
    assert shown["memory_points"] == {0, 2}
    assert shown["kernels"] == {0, 1}
    assert cut["memory_points"] == (2, 4)


def test_waiting_of_each_step_is_cut_as_the_steps_are():
    done = [(Identity(i), loaded(i, [work])) for i, work in ((0, 100), (1, 400), (2, 500), (3, 300))]
    unknown = dict.fromkeys(("compute_ns", "communication_ns", "waiting_ns", "input_ns", "host_ns", "clock"))
    rows = [StepWaitRow(rank=rank, step=step, **unknown) for rank in range(4) for step in range(5)]
    assert cut_to_ranks(rows, done, 20) == cut_to_ranks(rows, done, 0) == (rows, None)
    kept, told = cut_to_ranks(rows, done, 11)
    assert ({r.rank for r in kept}, len(kept), told) == ({0, 1, 2}, 15, (3, 4))


def test_a_cut_is_told_and_changes_no_number():
    identities = [Identity(i) for i in range(8)]
    packed = [PackedPartial.of(p) for p in partials()]
    whole = combine(identities, packed, [], version="1")
    cut = combine(identities, packed, [], version="1", table_rows=100)
    assert (cut.metrics, cut.findings, cut.headline, cut.ranks, cut.files) == (
        whole.metrics,
        whole.findings,
        whole.headline,
        whole.ranks,
        whole.files,
    )
    (diagnostic,) = [d for d in cut.diagnostics if d.code == "HP160"]
    told = {text.split(":")[0]: text for text in diagnostic.text.split("; ")}
    assert diagnostic.count == len(told)
    longer = {name for name in ("steps", "queue", "kernels", "gap_causes") if len(getattr(whole, name)) > 100}
    assert longer
    assert longer <= set(told)
    for name in longer:
        rows = getattr(cut, name)
        kept = {row.rank for row in rows}
        assert told[name] == f"{name}: rows of {len(kept)} of 8 recordings"
        assert 0 in kept
        assert rows == [row for row in getattr(whole, name) if row.rank in kept]
        assert len(rows) < 100 + max(p.rows(name) for p in packed)


def test_tables_of_a_file_are_those_that_are_packed():
    from hpuprof.model import tables
    from hpuprof.model.partial_codec import table_types

    assert set(table_types()) == {*tables.FILE_TABLES, "diagnostics"}
    assert set(tables.FILE_TABLES) == {*tables.LATE_TABLES, *tables._HELD}


def test_many_ranks_are_combined_without_holding_their_rows():
    base, ranks = partials()[0], 60
    packed = []
    for rank in range(ranks):
        steps = [msgspec.structs.replace(s, wall_ns=s.wall_ns + rank) for s in base.steps]
        file = msgspec.structs.replace(base.file, path=f"{rank}.json", world_size=ranks)
        packed.append(PackedPartial.of(msgspec.structs.replace(base, file=file, steps=steps)))

    def peak(held):
        tracemalloc.start()
        parts = [p.unpack() for p in packed] if held else packed
        data = combine([Identity(i) for i in range(ranks)], parts, [], version="1", table_rows=500)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return data, peak

    peak(held=False)  # loads what is loaded on first use
    (data, small), (same, large) = peak(held=False), peak(held=True)
    assert data == same
    assert (len(data.ranks), data.headline.population.endswith(f" {ranks} ranks")) == (ranks, True)
    assert all(len(getattr(data, n)) < 800 for n in ("steps", "queue", "kernels", "gap_causes", "operators"))
    assert small < 0.7 * large
