"""Words of vendors' interfaces: in the package only in `hpuprof.families`, in answers only where they are the device's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from cases_of_devices import DEVICES, SHAPES, recording

import hpuprof
from hpuprof.families import FAMILIES
from hpuprof.render import inspection
from hpuprof.render.brief import to_brief
from hpuprof.render.card import to_card
from hpuprof.render.graph_advice import to_advice
from hpuprof.render.html import to_html
from hpuprof.render.json import dumps
from hpuprof.render.markdown import to_markdown
from hpuprof.render.plan_text import to_plan
from hpuprof.render.text import to_text

PACKAGE = Path(hpuprof.__file__).parent
WORD = re.compile(
    r"(?<![A-Za-z])(?:(?i:cuda(?!_properties)|hpu(?!prof)|htcore|mark_?step|habana|gaudi|synapse|rocm|xpu|cupti|modulecacher|"
    r"nccl|hccl|mtia|musa|ascend|pytorch_(?:no_)?(?:cuda|hip))|hip(?=[A-Z])|HIP|(?:cu|syn|aiu|cnrt)[A-Z])"
)
EXCEPTIONS = {
    "recorder": "it calls torch's interface of each device",
    "lightning_plugin.py": "it registers the accelerator that lightning-habana brings",
    "cli/calibrate.py": "it chooses among the interfaces that the recorder calls",
    "ingest/dialect_rows.py": "categories of rows, by writer: one device's rows have several writers",
    "ingest/dialects.py": "processes of Habana's bridge, generations of its files, and usual words of threads' names",
    "ingest/dialect_activities.py": "rows of the bridge's lazy mode, and of libraries of collectives",
    "ingest/dialect_collectives.py": "libraries of collectives, which several families have",
    "ingest/dialect_collective_kernels.py": "libraries of collectives, which several families have",
    "ingest/hw_csv.py": "the format of Habana's hardware profiler",
    "ingest/wire.py": "keys of arguments, by writer",
    "dialect_report": "assumptions about Gaudi's files, judged",
    "render/dialect_report.py": "assumptions about Gaudi's files, judged",
    "cli/inspect.py": "asks for what Gaudi's files look like",
    "graph_mode/interfaces.py": "names of the interfaces to graphs; nothing for a device without one",
    "graph_mode/snippets.py": "code for the interfaces to graphs; nothing for a device without one",
    "what_if/constants.py": "sources of measured costs",
    "viewers/stock_tab.py": "categories that torch-tb-profiler knows",
    "analysis/modules.py": "a usual name of the user's",
    "analysis/step_search.py": "annotations that torch.distributed draws",
    "analysis/user_frames.py": "paths of packages that are not the user's",
    "report/redact.py": "names of products, which are no secrets",
    "report/host_names.py": "names of products, which are no secrets",
    "render/sections.py": "the title of the table of habana_perf_tool's quantities, which Gaudi alone has",
    "model/job_rows.py": "the source of a definition",
}
"""Where else such words may stand, and why."""


def code_strings(path: Path) -> list[tuple[int, str]]:
    """Return the strings of a module that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [(n.lineno, n.value) for n in found if id(n) not in texts]


def excepted(path: Path) -> str | None:
    place = path.relative_to(PACKAGE).as_posix()
    return next((e for e in EXCEPTIONS if place == e or place.startswith(f"{e}/")), None)


def test_vendors_words_stand_in_the_families():
    found, used = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if PACKAGE / "families" in path.parents:
            continue
        hits = [(line, word) for line, text in code_strings(path) for word in WORD.findall(text)]
        if hits and (exception := excepted(path)):
            used.add(exception)
        else:
            found += [f"{path.relative_to(PACKAGE)}:{line}: {word}" for line, word in hits]
    assert not found
    assert used == set(EXCEPTIONS), "exceptions that nothing needs"


def test_families_are_short():
    """A family is data: what several share has a module of its own."""
    for path in (PACKAGE / "families").glob("*.py"):
        if path.stem in FAMILIES:
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, path.name


FOREIGN = re.compile(
    r"cuda|\bhip|(?<!_)hpu(?!prof)|htcore|mark_?step|habana|gaudi|rocm|xpu|cupti|synapse|ModuleCacher|nccl|hl-prof|nvidia",
    re.IGNORECASE,
)


def answers(path: Path) -> dict[str, str]:
    """Return every form of the answer to a recording."""
    report = hpuprof.analyze(path, jobs=1)
    page = re.sub(
        r"<script.*?</script>", "", to_html(report), flags=re.S
    )  # the library that draws has words of its own
    return {
        "analyze": to_card(report),
        "--full": to_text(report, top=None),
        "--json": dumps(report),
        "--brief": to_brief(report, ["traces"]),
        ".html": page,
        ".md": to_markdown(report),
        "plan": to_plan(report),
        "advise": to_advice(report),
        "inspect": inspection.to_text(report),
        "inspect --json": inspection.to_json(report),
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.family)
def test_no_answer_speaks_of_another_vendors_interface(device, shape, tmp_path):
    for form, text in answers(recording(device, shape, tmp_path)).items():
        found = [text[max(0, m.start() - 60) : m.end() + 40] for m in FOREIGN.finditer(text.replace("HPUProfiler", ""))]
        assert not found, form


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.family)
def test_a_device_has_its_own_name_and_no_graph_interface_is_assumed(device, tmp_path):
    report = hpuprof.analyze(recording(device, "eager", tmp_path), jobs=1)
    assert [f.family for f in report.data.files] == [device.family]
    graph = report.graph_mode
    assert (graph.api, graph.code, graph.options) == (None, "", [])


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.family)
def test_what_launched_a_kernel_is_a_launch(device, tmp_path):
    """By name where the family's names are known, else by the correlation that both carry."""
    report = hpuprof.analyze(recording(device, "eager", tmp_path), jobs=1)
    assert {s.launches for s in report.data.steps} == {24}
    assert [row.call for row in report.data.launches] == ["(all)", device.launch]


def test_a_graph_launch_is_one_launch(tmp_path):
    for device in DEVICES[:2]:
        report = hpuprof.analyze(recording(device, "graph", tmp_path), jobs=1)
        assert [f.mode for f in report.data.files] == ["graphs"]
        assert {s.launches for s in report.data.steps} == {1}
