"""The site of the documents: `make site` writes it to `build/site`. The Python reference comes from docstrings, read without importing."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

project = "hpuprof"
version = release = (ROOT / "hpuprof" / "_version.py").read_text(encoding="utf-8").split('"')[-2]
author = "the hpuprof authors"

extensions = ["myst_parser", "autoapi.extension", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["generate.py"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["autoapi.python_import_resolution"]  # types of rooms that are left out

autoapi_dirs = ["../hpuprof"]
autoapi_generate_api_docs = False
autoapi_python_class_content = "both"
SHOWN = re.findall(r"^\.\. autoapi\w+:: ([\w.]+)$", (ROOT / "docs/reference/python.md").read_text("utf-8"), re.M)
SOURCES = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "hpuprof").rglob("*.py")}
# Modules of which nothing is shown are not read: that would take most of a minute.
autoapi_ignore = [
    str(path) for path, module in SOURCES.items() if not any(f"{name}.".startswith(f"{module}.") for name in SHOWN)
]
autoapi_options = ["members", "undoc-members"]

default_role = "code"
html_theme = "furo"
html_title = f"hpuprof {version}"
html_show_sphinx = False
copybutton_prompt_text = "$ "
