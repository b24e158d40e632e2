"""The memory curve, by hand: slices, values that hold, what is not known, and where the curve ends."""

from pathlib import Path

import pytest
from builder import MAIN, TraceBuilder

import hpuprof
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.tables import MemoryPoint


def sample(b: TraceBuilder, at: float, allocated: int | None, reserved: int | None = None, *, device: int = 1) -> None:
    """Add a memory row at a time in µs."""
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    args = {"Device Type": device, "Device Id": 0, "Addr": 1, "Bytes": 1}
    args |= {name: value for name, value in totals.items() if value is not None}
    b.event(ph="i", cat="cpu_instant_event", name="[memory]", s="t", pid=MAIN[0], tid=MAIN[1], ts=at, args=args)


def curve(points: list[MemoryPoint], space: str = "device") -> dict[int, tuple[int | None, int | None]]:
    """Return allocated and reserved by start of the slice in µs."""
    return {p.start_ns // 1000: (p.allocated_bytes, p.reserved_bytes) for p in points if p.space == space}


def test_a_slice_shows_its_largest_total_and_else_the_last(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)  # 400 µs: 200 slices of 2 µs
    for at, allocated, reserved in ((10, 100, 500), (11, 300, 500), (13, 200, 500), (398.5, 50, 900)):
        sample(b, at, allocated, reserved)
    points = b.reduce(tmp_path).memory_points
    assert len(points) == 200
    found = curve(points)
    assert found[0] == found[8] == (None, None), "before the first row nothing is known"
    assert found[10] == (300, 500)
    assert found[12] == (300, 500), "300 until 13 µs, then 200"
    assert found[14] == found[396] == (200, 500), "no row: the last value holds"
    assert found[398] == (200, 900)


def test_a_row_at_the_border_belongs_to_the_slice_that_begins_there(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for at, allocated in ((0, 700), (20, 100), (400, 9_000)):
        sample(b, at, allocated)
    found = curve(b.reduce(tmp_path).memory_points)
    assert (found[18], found[20]) == ((700, None), (100, None))
    assert max(a for a, _ in found.values()) == 700, "a row behind the last step is not in its span"


def test_rows_of_one_instant_keep_their_order(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for allocated in (800, 300):  # allocated and freed within one stamp
        sample(b, 20, allocated)
    found = curve(b.reduce(tmp_path).memory_points)
    assert (found[20], found[22]) == ((800, None), (300, None))


def test_what_was_allocated_before_the_steps_holds(tmp_path: Path):
    b = TraceBuilder()
    sample(b, 1, 640)
    for i in range(4):
        b.step(i, 1000 + 100 * i, 100)
    b.host("aten::add", 0, 5)
    found = curve(b.reduce(tmp_path).memory_points)
    assert (min(found), set(found.values())) == (1000, {(640, None)})


def test_host_and_device_are_apart(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    sample(b, 0, 1_000)
    sample(b, 0, 7, device=0)
    points = b.reduce(tmp_path).memory_points
    assert [p.space for p in points] == ["device"] * 200 + ["host"] * 200
    assert set(curve(points, "host").values()) == {(7, None)}


def test_rows_without_totals_give_no_curve(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    sample(b, 10, None)
    part = b.reduce(tmp_path)
    assert [(m.samples, m.peak_allocated_bytes) for m in part.memory] == [(1, None)]
    assert part.memory_points == []


def test_without_steps_the_rows_of_the_file_are_covered(tmp_path: Path):
    b = TraceBuilder().host("aten::add", 0, 10)
    sample(b, 50, 10)
    sample(b, 99, 30)
    found = curve(b.reduce(tmp_path).memory_points)
    # From 0 to 99 µs and 1 ns: slices of 496 ns.
    assert (min(found), max(found), len(b.reduce(tmp_path).memory_points)) == (0, 98, 200)
    assert (found[0], found[51], found[98]) == ((None, None), (10, None), (30, None))


def test_curves_of_a_partial_stay_small(tmp_path: Path):
    b = TraceBuilder().steps(100, 1000)
    for i in range(2_000):
        for device in (0, 1):
            sample(
                b, 50 * i, 1_000_000_000 + i * i * 7919 % 99_991 * 512, 2_000_000_000 + i // 9 * 2**21, device=device
            )
    part = b.reduce(tmp_path)
    assert len(part.memory_points) == 400
    assert len(PackedPartial.of(part).to_bytes()) < 20_000


@pytest.mark.parametrize("sample_name", ["hpu_g1_lazy", "hpu_g2_eager"])
def test_the_curve_stays_below_the_peak(samples, sample_name):
    report = hpuprof.analyze(samples / sample_name)
    (row,) = report.data.memory
    known = [p.allocated_bytes for p in report.data.memory_points if p.allocated_bytes is not None]
    assert 0 < max(known) <= row.peak_allocated_bytes
    starts = report.memory_points["start_ns"].diff().dropna()
    assert starts.nunique() == 1
