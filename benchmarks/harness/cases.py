"""The trace files a benchmark runs on: made once, reused while the generator is unchanged."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .tools import CHECKOUT, HERE


@dataclass(frozen=True, slots=True)
class Case:
    """One generated file."""

    dialect: str
    size_mb: int
    steps: int
    stacks: bool

    @property
    def label(self) -> str:
        """A short name, also the file's."""
        return f"{self.dialect}-{self.size_mb}mb-{self.steps}steps-{'stacks' if self.stacks else 'nostacks'}"


@dataclass(frozen=True, slots=True)
class Made:
    """A case whose file exists."""

    case: Case
    path: Path
    text_bytes: int
    rows: int


def generator_digest() -> str:
    """Return a hash of what decides the bytes of a generated trace, apart from its arguments."""
    rows = [CHECKOUT / "sample_traces" / "generator" / name for name in ("gaudi.py", "kineto.py", "rows.py")]
    digest = hashlib.sha256()
    for source in [HERE / "large.py", *sorted((HERE / "world").glob("*.py")), *rows]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def make(case: Case, folder: Path) -> Made:
    """Generate the case's file under `folder`, or find it there."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    path, note = folder / f"{case.label}.json", folder / f"{case.label}.made"
    generator = generator_digest()
    if not (path.exists() and note.exists() and json.loads(note.read_text())["generator"] == generator):
        # A process of its own: a launcher that has grown passes its size on to the peak RSS of its children.
        command = [sys.executable, "-m", "benchmarks.large", "--dialect", case.dialect, "--out", str(path)]
        command += ["--size-mb", str(case.size_mb), "--steps", str(case.steps)]
        command += ["--stacks"] * case.stacks
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CHECKOUT).stdout
        note.write_text(json.dumps({**json.loads(said), "generator": generator}))
    made = json.loads(note.read_text())
    return Made(case, path, made["text_bytes"], made["rows"])


def warm(path: Path) -> None:
    """Read the file once, so that the first tool does not pay for the disk."""
    with path.open("rb") as file:
        while file.read(1 << 22):
            pass
