"""The dialect report: what it counts, each assumption confirmed and contradicted, and that no name leaves a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builder import MAIN, TraceBuilder
from conftest import ROOT
from planted_secrets import SECRETS, leaks

from hpuprof.dialect_report.assumption import CERTAINTY
from hpuprof.dialect_report.assumptions import ASSUMPTIONS
from hpuprof.dialect_report.collect import facts_of
from hpuprof.dialect_report.facts import Facts
from hpuprof.dialect_report.summary import summary
from hpuprof.dialect_report.values import form
from hpuprof.dialect_report.words import hw_word, shape, track_shape
from hpuprof.render.dialect_report import LIMIT, to_json, to_text

SYNAPSE = (22101, 4294966298)
TPC = "TPC_SPU_START_TO_SPU_HALT"
Events = list[dict[str, Any]]


def gaudi() -> TraceBuilder:
    """Six runs of two recipes, as hpuprof believes that Kineto writes them on a Gaudi2."""
    b = TraceBuilder(baseTimeNanoseconds=1_790_000_000_000_000_000)
    for run in range(6):
        at, key = 1000.0 * run, (60914, "140512") if run % 3 else (17, "0x9f")
        ids = {"recipeId": key[0], "recipeHandle": key[1], "streamHandle": "0x54", "eventHandle": "0x0", "hidden": 1}
        b.host("LaunchRecipeTask", at, 40, cat="privateuse1_runtime")
        b.host("Launch", at + 5, 20, cat="privateuse1_runtime")
        for end, name in (("s", "Launch"), ("f", "enqueueWithExternalEventsExt")):
            b.host(name, at + 6, 0, cat="hpu_op", thread=MAIN if end == "s" else SYNAPSE)
            thread = MAIN if end == "s" else SYNAPSE
            b.event(ph=end, cat="ac2g", name="ac2g", id=run, pid=thread[0], tid=thread[1], ts=at + 6, args=None)
        name = f"/home/u/.graph_dumps/graph_{key[0]}"
        b.host(
            "enqueueWithExternalEventsExt (accel0)", at + 10, 9, cat="hpu_op", thread=SYNAPSE, recipeName=name, **ids
        )
        row = {**ids, "recipeName": "", "dataType": "bf16", "EventName": "layers/4/mlp/act"}
        for lane, tid, cat, event, width in (
            ("TPC 0", 7000, "kernel", TPC, 18.1),
            ("TPC 1", 7001, "kernel", TPC, 18.1),
            ("MME 0", 6000, "kernel", "MMEH_WB0_MON_TS_BIT1", 80.0),
            ("DMA 0", 4000, "hpu_op", "DBG_DMA_TRC_WR_DATA_LAST", 5.0),
            ("DMA 0", 4000, "hpu_op", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH", 0.2),
            ("NIC 0", 14000, "hpu_op", "STM_0_RX", 0.2),
        ):
            b.lane("gemm", at + 100, width, engine=lane, tid=tid, cat=cat, **row, **{"HW event name": event})
        none = {"recipeId": 0, "recipeName": "", "HW event name": TPC}
        b.lane("null", at + 300, 2, engine="TPC 0", tid=7000, cat="kernel", **none)
    return b


def look(builder: TraceBuilder, folder: Path, name: str = "t.json") -> Facts:
    return facts_of(str(builder.write(folder / name)))


def verdicts(facts: Facts) -> dict[str, str]:
    return {judged.id: judged.verdict for judged in summary([facts]).kinds[0].assumptions}


def test_every_assumption_is_confirmed_where_a_file_is_as_believed(tmp_path):
    assert verdicts(look(gaudi(), tmp_path)) == {assumption.id: "confirmed" for assumption in ASSUMPTIONS}


def on_device(events: Events, **wanted: Any) -> Events:
    """Return device rows whose arguments hold these values; names with _ for blanks."""
    wanted = {name.replace("_", " ") if name.startswith("HW") else name: value for name, value in wanted.items()}
    rows = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
    return [e for e in rows if all(e["args"].get(name) == value for name, value in wanted.items())]


def calls(events: Events, word: str = "enqueueWithExternalEventsExt") -> Events:
    return [e for e in events if e["ph"] == "X" and e["name"].startswith(word) and e["dur"]]


def arguments(rows: Callable[[Events], Events], **changed: Any) -> Callable[[Events], None]:
    """Return a change of arguments of some rows: None takes one away."""

    def change(events: Events) -> None:
        for event in rows(events):
            for name, value in changed.items():
                key = name.replace("_", " ") if name.startswith("HW") else name
                event["args"].pop(key, None)
                if value is not None:
                    event["args"][key] = value

    return change


def fields(rows: Callable[[Events], Events], **changed: Any) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        for event in rows(events):
            event.update(changed)

    return change


def more_lanes(engine: str, tid: int, count: int, event: str) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        b = TraceBuilder()
        for i in range(count):
            b.lane("gemm", 5.0, 1, engine=f"{engine} {i}", tid=tid + i, cat="kernel", **{"HW event name": event})
        events += b.events

    return change


def named(tid: int, name: str) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        for event in events:
            if event["name"] == "thread_name" and event["tid"] == tid:
                event["args"]["name"] = name

    return change


def header(**changed: Any) -> Callable[[Events], None]:
    return lambda events: events.append({"header": changed})


def wide_stamps(events: Events) -> None:
    for i, event in enumerate(on_device(events, HW_event_name="STM_0_RX")):
        event["dur"] = 1.0 + 10 * i


def all_rows(events: Events) -> Events:
    return [e for e in events if e["ph"] == "X"]


CONTRADICTED: dict[str, Callable[[Events], None]] = {
    "GA01": lambda events: [e.update(pid=3) for e in events if e["pid"] == 0] and None,
    "GA02": named(6000, "[HD0] TPC 9"),
    "GA03": named(4000, "[HD0] ARC 9"),
    "GA04": more_lanes("TPC", 7100, 24, TPC),
    "GA05": more_lanes("MME", 6100, 4, "MMEH_WB1_MON_TS_BIT1"),
    "GA06": more_lanes("DMA", 4100, 6, "DBG_DMA_TRC_WR_DATA_LAST"),
    "GA07": arguments(lambda e: on_device(e, HW_event_name=TPC), HW_event_name="TPC_NEW_WORK"),
    "GA08": arguments(lambda e: on_device(e, HW_event_name="MMEH_WB0_MON_TS_BIT1"), HW_event_name="MME_DONE"),
    "GA09": arguments(lambda e: on_device(e, HW_event_name="DBG_DMA_TRC_WR_DATA_LAST"), HW_event_name="DMA_DONE"),
    "GA10": arguments(lambda e: on_device(e, HW_event_name="STM_0_RX"), HW_event_name="NIC_SENDING"),
    "GA11": wide_stamps,
    "GA12": fields(lambda e: on_device(e, HW_event_name="MMEH_WB0_MON_TS_BIT1"), ts=100.0),
    "GA13": fields(lambda e: on_device(e, HW_event_name="DBG_DMA_TRC_WR_DATA_LAST"), name="null"),
    "GA14": arguments(lambda e: on_device(e)[:3], HW_event_name=None),
    "GA15": arguments(calls, HW_event_name=TPC),
    "GA16": arguments(lambda e: on_device(e, recipeId=17), recipeId="0x11"),
    "GA17": arguments(lambda e: on_device(e, recipeId=17), recipeHandle=159),
    "GA18": arguments(lambda e: on_device(e, recipeId=17), recipeHandle=None),
    "GA19": arguments(calls, recipeId=0),
    "GA20": arguments(lambda e: calls(e)[1:2], recipeName="elsewhere/graph_3"),
    "GA21": arguments(calls, recipeId=5),
    "GA22": lambda events: events.remove(on_device(events, recipeId=60914)[0]),
    "GA23": fields(lambda e: on_device(e, recipeId=17)[:6], ts=-50.0),
    "GA24": arguments(calls, recipeName="my model"),
    "GA25": lambda events: [e.update(name="odd") for e in events if e["ph"] == "X" and e["pid"]] and None,
    "GA26": fields(lambda e: calls(e, "Launch"), name="Launch"),
    "GA27": lambda events: events.__setitem__(slice(None), [e for e in events if e.get("cat") != "ac2g"]),
    "GA28": arguments(lambda e: on_device(e)[:1], correlation=7),
    "GA29": fields(lambda e: on_device(e, HW_event_name="MMEH_WB0_MON_TS_BIT1"), cat="hpu_op"),
    "GA30": fields(lambda e: on_device(e, HW_event_name="DBG_DMA_TRC_WR_DATA_LAST"), cat="mtia_ccp_events"),
    "GA31": lambda events: [e.update(cat="privateuse1_runtime") for e in all_rows(events) if e["pid"]] and None,
    "GA32": fields(lambda e: [r for r in on_device(e) if r["cat"] == "kernel"][:2], ph="B"),
    "GA33": fields(lambda e: calls(e)[:1], args=None),
    "GA34": arguments(lambda e: on_device(e, hidden=1), hidden=True),
    "GA35": header(baseTimeNanoseconds="1790000000000000000"),
    "GA36": lambda events: [e.update(ts=1.0) for e in events if e.get("cat") == "ac2g"] and None,
    "GA37": arguments(calls, EventName="layers/1"),
    "GA39": lambda events: [e.update(ts=e["ts"] + 4000) for e in on_device(events, recipeId=17)[:4]] and None,
    "GA40": arguments(lambda e: on_device(e, recipeId=17), dataType=16),
    "GA38": arguments(lambda e: on_device(e, recipeId=17), streamHandle=84),
}


@pytest.mark.parametrize("name", [assumption.id for assumption in ASSUMPTIONS])
def test_each_assumption_can_be_contradicted(tmp_path, name):
    b = gaudi()
    CONTRADICTED[name](b.events)
    b.header.update(*(event["header"] for event in b.events if "header" in event))
    b.events = [event for event in b.events if "header" not in event]
    found = summary([look(b, tmp_path)]).kinds[0].assumptions
    judged = next(one for one in found if one.id == name)
    assert judged.verdict == "contradicted"
    assert judged.figure
    assert f"{name} CONTRADICTED: " in to_text(summary([look(b, tmp_path)]))


def test_assumptions_are_numbered_and_say_where_they_come_from():
    assert [assumption.id for assumption in ASSUMPTIONS] == [f"GA{i:02}" for i in range(1, len(ASSUMPTIONS) + 1)]
    assert all(a.source and a.statement.endswith(".") and a.certainty in CERTAINTY for a in ASSUMPTIONS)
    assert len({assumption.judge for assumption in ASSUMPTIONS}) == len(ASSUMPTIONS)


def test_a_file_without_lanes_says_nothing_of_them(tmp_path):
    b = TraceBuilder().host("enqueueWithExternalEventsExt", 1, 5, cat="hpu_op", recipeId=3, recipeName="a/graph_1")
    said = verdicts(look(b, tmp_path))
    assert {name for name, verdict in said.items() if verdict != "not seen"} == {
        "GA16", "GA20", "GA24", "GA26", "GA33"
    }  # fmt: skip


def test_recipes_with_one_id_are_told_apart_by_their_handle(tmp_path):
    b = gaudi()
    for event in b.events:
        if event.get("args") and event["args"].get("recipeId") == 17:
            event["args"]["recipeId"] = 60914
    found = look(b, tmp_path).recipes
    assert (found.ids, found.handles, found.ids_of_several_handles) == (1, 2, 1)
    assert (found.matched_rows, found.device_rows, found.enqueues_without_rows, found.runs) == (24, 24, 0, 6)


def test_a_call_whose_recipe_left_no_rows_is_counted(tmp_path):
    b = gaudi().host("enqueueWithExternalEventsExt", 9000, 5, cat="hpu_op", thread=SYNAPSE, recipeId=9)
    found = look(b, tmp_path).recipes
    assert (found.enqueues, found.enqueues_without_rows) == (7, 1)


@pytest.mark.parametrize(
    ("device", "call", "matched"),
    [("17", 17, 2), ("0x11", 17.0, 2), ("1_7", 17, 0), (-17, "-17", 0)],
    ids=str,
)
def test_ids_are_equal_where_launches_are_joined_by_them(tmp_path, device, call, matched):
    b = TraceBuilder().host("enqueueWithExternalEventsExt", 1, 5, cat="hpu_op", thread=SYNAPSE, recipeId=call)
    for i in range(2):
        b.lane("gemm", 20 + i, 1, engine="TPC 0", tid=7000, cat="kernel", recipeId=device, **{"HW event name": TPC})
    assert look(b, tmp_path).recipes.matched_rows == matched


def test_an_id_alone_counts_where_calls_have_no_handle(tmp_path):
    """Such calls do not separate two recipes of one id: their rows count together."""
    b = TraceBuilder()
    for i, handle in enumerate(("1", "2", "1", "1")):
        b.host("enqueueWithExternalEventsExt", 100 * i, 5, cat="hpu_op", thread=SYNAPSE, recipeId=17)
        more = {"recipeId": 17, "recipeHandle": handle, "HW event name": TPC}
        b.lane("gemm", 100 * i + 20, 10, engine="TPC 0", tid=7000, cat="kernel", **more)
    found = look(b, tmp_path).recipes
    assert (found.launched, found.whole, found.runs, found.matched_rows, found.handles) == (1, 1, 4, 4, 2)


def test_forms_of_ids():
    values = (31, 0, "31", "0x1f", "0x0", "", "abc", None, True)
    assert [form(v) for v in values] == ["number", "zero", "decimal", "hex", "zero", "empty", "text", "null", "bool"]


def test_calls_nest_where_one_contains_the_other(tmp_path):
    b = gaudi()
    b.host("Launch", 9000, 10, cat="privateuse1_runtime").host("run", 9005, 10, cat="privateuse1_runtime")
    found = look(b, tmp_path).calls
    assert found.nested == {"LaunchRecipeTask > Launch": 6}
    assert (found.zero, found.repeated) == ({"Launch": 6, "enqueueWithExternalEventsExt": 6}, 0)


def test_a_user_s_annotation_is_no_launch(tmp_path):
    assert look(gaudi().annotation("run", 0, 5).host("launch", 0, 5), tmp_path).calls.words == {
        "enqueueWithExternalEventsExt": 12, "Launch": 12, "LaunchRecipeTask": 6
    }  # fmt: skip


def test_widths_are_quantiles_to_two_digits(tmp_path):
    b = gaudi()
    mme = look(b, tmp_path).engine("MME")
    assert mme is not None
    widths = mme.events[0].widths
    assert (widths.rows, widths.p1, widths.p50, widths.p99, widths.zero, widths.tiny) == (6, 80, 80, 80, 0, 0)
    hpu_op = next(c for c in look(b, tmp_path).categories if c.name == "hpu_op")
    assert (hpu_op.widths.rows, hpu_op.widths.zero, hpu_op.phases) == (36, 12, {"X": 36})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[HD0] TPC 12", "[HD#] TPC #"),
        ("Synapse/140251 evelyn", "Synapse/# a"),
        ("thread 7 (AccThreadPool)", "thread # (aA)"),
        ("gpu-node-17.corp", "gpu-a-#.a"),
        ("ÄÖ\u202e\x1b[0m", "?[#a"),
        ("", "(empty)"),
        ("ab " * 100, "a " * 22 + "a..."),
    ],
)
def test_shapes(text, wanted):
    assert track_shape(text) == wanted


def test_unknown_hardware_events_stay_where_they_read_like_an_enumeration():
    assert [hw_word(w) for w in ("TPC_NEW_EVENT_3", "WB3_END", "Evelyn's", "HUNTER2", "a_b")] == [
        "TPC_NEW_EVENT_3", "WB3_END", "Aa'a", "A#", "a_a"
    ]  # fmt: skip
    assert hw_word("CTX_4711987_DONE") == "CTX_#_DONE"
    assert hw_word("KEY_" + "AKIAIOSFODNN7EXAMPLE") == shape("KEY_AKIAIOSFODNN7EXAMPLE")


PLAIN = ("evelyn77", "HOSTFOO", "LlamaSecretModel", "zq_kernel_fwd", "/data/projx/run.py", "0xDEADBEEF99", "987654321")
"""What no rule would find in a text, as it is a word like others."""


def planted(folder: Path) -> Path:
    """A Gaudi's file with secrets in every field that can hold a text, and in the names of fields."""
    b = gaudi()
    texts = [*(text for text, _ in SECRETS.values()), *PLAIN]
    b.header.update(
        {text: text for text in texts}, host_name="HOSTFOO", deviceProperties=[{"name": "LlamaSecretModel"}]
    )
    b.header["baseTimeNanoseconds"] = "987654321"
    keys = ("HW event name", "recipeId", "recipeHandle", "recipeName", "EventName", "streamHandle", "name", "hidden")
    for i, text in enumerate(texts):
        b.event(ph="M", name="process_name", pid=text, tid=text, args={"name": text})
        b.event(ph="M", name="thread_name", pid=0, tid=7000 + i, args={"name": f"[HD0] TPC {text}"})
        b.event(ph="M", name="thread_name", pid=text, tid=text, args={"name": text})
        b.event(ph="M", name="thread_name", pid=0, tid=987654321 + i, args={"name": f"[HD0] MME {text}"})
        said = {**dict.fromkeys(keys, text), text: text, "deep": {text: [text]}}
        for pid, tid in ((0, 7000 + i), (0, 987654321 + i), (0, text), (987654321, text)):
            for cat in ("kernel", "hpu_op", "privateuse1_runtime", "cpu_op", text):
                for name in (text, f"enqueue ({text})", f"Launch {text}"):
                    b.event(ph="X", cat=cat, name=name, pid=pid, tid=tid, ts=10.0 * i, dur=5, args=said)
        b.event(ph=text, cat=text, name=text, pid=text, tid=text, ts=text, dur=text, args=text, id=text, **{text: text})
        b.event(ph="s", cat=text, name=text, pid=0, tid=7000 + i, ts=10.0 * i, id=text, args={text: text})
        b.event(ph="f", cat=text, name=text, pid=text, tid=text, ts=10.0 * i, id=text, args={text: text})
    return b.write(folder / "evelyn77" / "HOSTFOO_4711.1.pt.trace.json.gz")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_secret_of_any_field_comes_out(run, tmp_path, form):
    path = planted(tmp_path)
    assert facts_of(str(path)).device_rows > 500  # the rows were read
    code, out, err = run("inspect", "--report-dialect", path, *form)
    assert (code, err) == (0, "")
    assert len(out) > 1000
    assert leaks(out) == []
    assert [text for text in (*PLAIN, str(tmp_path), "projx", "DEADBEEF", "4711", "98765") if text in out] == []


HOSTILE = [
    {"ph": "X", "cat": "kernel", "name": ["x"], "pid": [0], "tid": {"a": 1}, "ts": 1, "dur": 1e300, "args": [1, 2]},
    {"ph": 7, "cat": 9, "name": None, "pid": None, "tid": None, "ts": None, "dur": "nan", "args": "text"},
    {"ph": "X", "cat": "hpu_op", "name": "enqueue", "pid": 1, "tid": 1, "ts": "9E+999", "dur": -5, "args": {"recipeId": "9" * 9000}},
    {"ph": "X", "cat": "hpu_op", "name": "enqueue", "pid": 1, "tid": 1, "ts": "", "dur": True, "args": {"recipeId": {}, "recipeHandle": []}},
    {"ph": "X", "cat": "k" * 9000, "name": "n" * 9000, "pid": 1, "tid": 10**30, "ts": 5, "dur": 5, "args": {"K" * 9000: 1}},
    {"ph": "f", "cat": "ac2g", "id": {"a": [1]}, "pid": 0, "tid": 7000, "ts": 5},
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(HOSTILE)))
def test_hostile_rows_are_counted_and_the_others_stay(tmp_path, row):
    b = gaudi()
    rows = len(b.events)
    b.event(**HOSTILE[row])
    found = look(b, tmp_path)
    assert found.rows == rows + 1
    assert found.recipes.matched_rows == 24
    assert len(to_text(summary([found])).encode()) < 6000


def test_a_file_of_endless_variety_stays_small_in_memory_and_output(tmp_path):
    b = gaudi()
    for i in range(30_000):
        args = {f"key{i}": i, "recipeId": i, "recipeHandle": str(i), "HW event name": f"A_{i}"}
        b.event(ph="X", cat=f"cat{i}", name=f"n{i}", pid=0, tid=7000 + i % 999, ts=i, dur=i, args=args)
    facts = look(b, tmp_path)
    assert facts.left_out["arguments of rows"] > 5000
    for text in (to_text(summary([facts])), to_json(summary([facts] * 3))):
        assert len(text.encode()) <= LIMIT


def test_ranks_that_look_alike_are_folded_and_other_files_stand_alone(run, tmp_path):
    for rank in range(3):
        b = gaudi()
        b.host("aten::mm", 1, 2 + rank)
        b.write(tmp_path / f"rank{rank}.json")
    TraceBuilder().kernel("gemm", 5, 2, launch=1).write(tmp_path / "cuda.json")
    (tmp_path / "broken.pt.trace.json").write_text("no trace")
    code, out, err = run("inspect", "--report-dialect", tmp_path)
    assert (code, err) == (0, "left out: broken.pt.trace.json: no trace events\n")
    assert "FILE KIND 1: object hpu G3; 3 files alike" in out
    assert "FILE KIND 2: object cuda (no generation); 1 file, 2 rows" in out
    assert out.count("none judged, the device is not Gaudi") == 1
    document = json.loads(run("inspect", "--report-dialect", tmp_path, "--json")[1])
    assert [kind["files"] for kind in document["kinds"]][:2] == [3, 1]
    assert [len(kind["assumptions"]) for kind in document["kinds"]][:2] == [len(ASSUMPTIONS), 0]


@pytest.mark.parametrize("cut", [0.3, 0.8])
def test_a_cut_file_says_so(tmp_path, cut):
    text = gaudi().text()
    path = tmp_path / "t.json"
    path.write_text(text[: int(cut * len(text))])
    facts = facts_of(str(path))
    assert facts.damage["HP101"] == 1
    assert "damage     HP101 1" in to_text(summary([facts]))


def test_an_unclosed_array_is_read(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("[\n" + "".join(json.dumps(event) + ",\n" for event in gaudi().events))
    facts = facts_of(str(path))
    assert (facts.form, facts.recipes.matched_rows) == ("array", 24)


def test_an_error_names_the_file(run, tmp_path):
    path = tmp_path / "none.json"
    path.write_text("{}")
    code, out, err = run("inspect", "--report-dialect", path)
    assert (code, out) == (3, "")
    assert "none.json" in err


def test_files_that_end_in_an_error_are_counted_by_its_kind(tmp_path):
    found = summary(["trace-format", look(gaudi(), tmp_path), "trace-format"])
    assert (found.unreadable, len(found.kinds)) == ({"trace-format": 2}, 1)
    assert "not read: trace-format 2\n" in to_text(found)


@pytest.mark.parametrize("name", ["hpu_g1_lazy", "hpu_g3_compile", "hpu_g3_lazy_8_ranks", "hpu_hw_csv", "cpu_1_rank"])
def test_a_sample_s_report_fits_into_an_issue(run, name):
    code, out, err = run("inspect", "--report-dialect", ROOT / "sample_traces" / name)
    assert (code, err) == (0, "")
    assert 1000 < len(out.encode()) < 6000
    assert "gaudi-host" not in out
    assert ("ASSUMPTIONS: " in out) == name.startswith("hpu")


def test_events_on_a_thread_that_no_rule_takes_for_a_lane_are_listed(tmp_path):
    b = TraceBuilder().event(ph="M", name="thread_name", pid=3, tid=1, args={"name": "TPC 0"})
    b.event(ph="B", name="node", pid=3, tid=1, ts=10.5, args={"HW event name": "TPC_SPU_START"})
    assert look(b, tmp_path).unknown == {"hardware events off device lanes": {"TPC_SPU_START on TPC #": 1}}
