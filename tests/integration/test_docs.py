"""Documents are tested: generated ones are fresh, links lead somewhere, README commands run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import needs
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("*/README.md"),
        ROOT / "CONTRIBUTING.md",
    ]
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_documents_are_fresh():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "stale: nothing\n"), "run python docs/generate.py"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#][^)]*)\)", text):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target.split("#")[0]).exists(), target


def test_benchmarks_that_documents_name_are_there():
    named = {
        m for path in DOCUMENTS for m in re.findall(r"python -m (benchmarks[\w.]+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    for module in named:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_every_code_cause_and_metric_is_documented():
    from hpuprof.diagnostics import DIAGNOSTICS
    from hpuprof.model.schema import BLOCKED_KINDS, Cause
    from hpuprof.report.findings import BY_CODE

    codes = (ROOT / "docs" / "reference" / "codes.md").read_text(encoding="utf-8")
    definitions = (ROOT / "docs" / "method" / "definitions.md").read_text(encoding="utf-8")
    for code in [*DIAGNOSTICS, *BY_CODE]:
        assert f"### {code} " in codes
    for name in [*(c.name.lower() for c in Cause), *BLOCKED_KINDS]:
        assert f"`{name}`" in definitions, name


def test_every_metric_is_defined():
    import hpuprof

    definitions = (ROOT / "docs" / "method" / "definitions.md").read_text(encoding="utf-8")
    for name, metric in hpuprof.analyze(ROOT / "sample_traces" / "hpu_g1_lazy").metrics.items():
        assert metric.definition.endswith(".")
        assert f"`{name}`" in definitions, name


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.mark.parametrize("document", ["README.md", "docs/guide/index.md"])
def test_console_blocks_show_what_the_commands_print(limited, document):
    shown = 0
    for block in _blocks("console", (ROOT / document).read_text(encoding="utf-8")):
        for command, expected in re.findall(r"^\$ (hpuprof .*)\n((?:(?!\$ ).*\n?)*)", block, re.M):
            if not expected.strip():
                continue
            done = limited(*shlex.split(command)[1:], cwd=ROOT, environment={"COLUMNS": "80"})
            assert (done.exit, command) == (0, command)
            for part in expected.split("...\n"):
                assert part.strip("\n") in done.stdout, command
            shown += 1
    assert shown >= 2


def test_readme_python_blocks_run():
    blocks = _blocks("python")
    assert blocks
    for block in blocks:
        subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=ROOT, check=True, capture_output=True)


def test_readme_names_its_two_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.M)


def test_the_site_is_built_without_a_warning(tmp_path):
    needs.module("site", "sphinx")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("hpuprof.api.analyze", "hpuprof.recorder.lightning.HPUProfiler", "hpuprof.errors.TraceFormatError"):
        assert f'id="{name}"' in page
