"""What the names of trace files say, by every convention met."""

from __future__ import annotations

import pytest

from hpuprof.naming import is_trace_name, parse_name, trace_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "gpu01_12345.1700000000000000000.pt.trace.json",
            {"worker": "gpu01_12345", "host": "gpu01", "number": 12345, "span": 1_700_000_000_000_000_000},
        ),
        ("worker0.1623143089861.pt.trace.json.gz", {"rank": 0, "span": 1_623_143_089_861}),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", {"rank": 3, "host": None, "number": 12}),
        ("sc09wynn05-hls2_14734.1729284340533778439.pt.trace.json", {"host": "sc09wynn05-hls2", "number": 14734}),
        ("node.cluster.local_7.17.pt.trace.json", {"host": "node.cluster.local"}),
        ("gpu01_12345.pt.trace.json", {"host": None, "number": 12345}),  # not the handler's form: no time
        ("gpu01_12345.json", {"host": None}),
        ("my_model_12.17.pt.trace.json", {"host": None}),  # no host is called so
        ("epoch_12.17.pt.trace.json", {"host": None}),
        ("bert-step_12.17.pt.trace.json", {"host": None}),
        ("run3_12.17.pt.trace.json", {"host": None}),
        ("rank3-a_12.17.pt.trace.json", {"host": None, "rank": 3}),
        ("a-local_rank3_12.17.pt.trace.json", {"host": None}),
        ("job-worker-1_4242.17.pt.trace.json", {"rank": None, "host": "job-worker-1", "number": 4242}),
        ("rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz", {"rank": 70, "span": 2861}),
        ("rank0.json.gz", {"rank": 0, "span": None}),
        ("mtia_inference_rank_0.json.gz", {"rank": 0}),
        ("sampled_rank-1.json.gz", {"rank": 1}),
        ("nranks8.json", {"rank": None}),
        ("local_rank_3.json", {"rank": None, "local_rank": 3}),
        ("trace.json", {"worker": "trace", "rank": None, "number": None}),
        (
            "fit-perf-[Strategy]SingleDeviceStrategy.training_step.1795241901196887561.pt.trace.json.gz",
            {"worker": "perf", "stage": "fit", "action": "training_step", "rank": None},
        ),
        (
            "fit-perf-logs-_Strategy_SingleHPUStrategy_training_step.17.pt.trace.json",
            {"worker": "perf-logs", "stage": "fit", "action": "training_step"},
        ),
        (
            "validating-perf-3-[Strategy]DDPStrategy.validation_step.17.pt.trace.json",
            {"worker": "perf-3", "stage": "validate", "action": "validation_step", "local_rank": 3},
        ),
        ("test-[Strategy]DDPStrategy.test_step.17.pt.trace.json", {"stage": "test", "action": "test_step"}),
        ("TrainerFn.FITTING-x-[Strategy]DDPStrategy.training_step.json", {"stage": "fit"}),
        ("fitness_7.1.pt.trace.json", {"stage": "", "host": "fitness", "number": 7}),
    ],
)
def test_a_name_says(name: str, expected: dict[str, object]):
    parts = parse_name(name)
    assert {key: getattr(parts, key) for key in expected} == expected


def test_stage_and_action_do_not_change_the_worker():
    names = [
        "fit-p-0-[Strategy]S.training_step.1.pt.trace.json",
        "validate-p-0-[Strategy]S.validation_step.2.pt.trace.json",
    ]
    assert {parse_name(n).worker for n in names} == {"p-0"}


@pytest.mark.parametrize("host", ["gaudi-host0", "node.cluster.local", "a_b", "…"])
def test_our_names_read_back(host: str):
    name = trace_name(host, 12, 1_700_000_000_000_000_000, compressed=True)
    parts = parse_name(name)
    assert (parts.number, parts.span, name.endswith(".gz"), is_trace_name(name)) == (
        12,
        1_700_000_000_000_000_000,
        True,
        True,
    )


def test_only_names_of_the_recorder_are_surely_traces():
    assert [is_trace_name(n) for n in ("a.pt.trace.json", "config.json", "a.pt.trace.json.tmp")] == [True, False, False]
