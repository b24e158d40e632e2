"""Named parts of a step: annotations, Lightning actions, modules."""

from builder import TraceBuilder


def test_actions_modules_and_annotations_with_what_the_device_did_meanwhile(tmp_path):
    b = TraceBuilder().steps(2, 100)
    for t in (0, 100):
        b.annotation("[pl][profile]forward", t + 10, 40).annotation("mine", t + 60, 10)
        b.host("nn.Module: Linear_0", t + 20, 20, cat="python_function").host(
            "forward.py(1): f", t + 20, 20, cat="python_function"
        )
        b.device("k", t + 30, 30)
    found = [
        (a.name, a.kind, a.count, a.host_total_ns, a.host_p50_ns, a.device_busy_ns, a.device_busy_per_step_ns)
        for a in b.reduce(tmp_path).actions
    ]
    assert found == [
        ("[pl][profile]forward", "action", 2, 80_000, 40_000, 40_000, 20_000),
        ("nn.Module: Linear_0", "module", 2, 40_000, 20_000, 20_000, 10_000),
        ("mine", "annotation", 2, 20_000, 10_000, 0, 0),
    ]


def test_without_a_traced_device_the_device_column_is_unknown(tmp_path):
    (row,) = TraceBuilder().steps(2, 100).annotation("mine", 10, 30).reduce(tmp_path).actions
    assert (row.host_total_per_step_ns, row.device_busy_ns, row.device_busy_per_step_ns) == (15_000, None, None)
