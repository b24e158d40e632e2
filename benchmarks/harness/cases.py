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
    """A generated file of this size, or a folder of as many ranks, each of this size."""

    dialect: str = "cuda"
    size_mb: float = 200
    steps: int = 10
    stacks: bool = False
    ranks: int = 1
    suffix: str = ".json"

    @property
    def label(self) -> str:
        """A short name."""
        stacks = "stacks" if self.stacks else "nostacks"
        ranks = f"{self.ranks}ranks-" if self.ranks > 1 else ""
        return f"{self.dialect}-{ranks}{self.size_mb:g}mb-{self.steps}steps-{stacks}"


@dataclass(frozen=True, slots=True)
class Made:
    """A case whose files exist, in order of rank."""

    case: Case
    files: tuple[Path, ...]
    text_bytes: int
    rows: int

    @property
    def path(self) -> Path:
        """What a tool is given: the file, or the folder of ranks."""
        return self.files[0] if self.case.ranks == 1 else self.files[0].parent


def _generator_digest() -> str:
    """Return a hash of what decides the bytes of a generated trace, apart from its arguments."""
    rows = [CHECKOUT / "sample_traces" / "generator" / name for name in ("gaudi.py", "kineto.py", "rows.py")]
    digest = hashlib.sha256()
    for source in [HERE / "large.py", *sorted((HERE / "world").glob("*.py")), *rows]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def make(case: Case, folder: Path) -> Made:
    """Generate the case's files under `folder`, or find them there; all have been read once then."""
    folder = folder.absolute() / case.label
    folder.mkdir(parents=True, exist_ok=True)
    note = folder.with_suffix(".made")
    about = json.loads(note.read_text()) if note.exists() else {}
    generator = _generator_digest()
    if about.get("generator") != generator:
        # Processes of their own: a launcher that has grown passes its size on to the peak RSS of its children.
        command = [sys.executable, "-m", "benchmarks.large", "--dialect", case.dialect, "--size-mb", str(case.size_mb)]
        command += ["--steps", str(case.steps), "--world-size", str(case.ranks), *["--stacks"] * case.stacks]
        made = []
        for rank in range(case.ranks):
            path = folder / f"host{rank // 8:03d}_{rank}.{1_700_000_000_000_000_000 + rank}.pt.trace{case.suffix}"
            told = [*command, "--rank", str(rank), "--out", str(path)]
            made.append(json.loads(subprocess.run(told, check=True, capture_output=True, cwd=CHECKOUT).stdout))
        about = {"generator": generator, "files": [m["file"] for m in made]}
        about |= {name: sum(m[name] for m in made) for name in ("text_bytes", "rows")}
        note.write_text(json.dumps(about))
    for path in about["files"]:
        with open(path, "rb") as file:
            while file.read(1 << 22):
                pass
    return Made(case, tuple(map(Path, about["files"])), about["text_bytes"], about["rows"])
