"""Reports to share: hosts, paths, command lines and user names become tokens; nothing else changes.

A secret has one token everywhere, in every table and in both reports of a comparison. Tokens are numbered in the order
of the sorted secrets, so the same input gives the same output. Names of operators, kernels, annotations and data types
stay, except for paths, addresses and command lines inside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hpuprof.arguments import Kind, checked, made_of
from hpuprof.ingest.dialects import THREAD_WORDS
from hpuprof.naming import parse_name
from hpuprof.report.host_names import hosts
from hpuprof.report.model import Report
from hpuprof.report.secrets import keys

# A URL with all that follows, as its query may be a password; a leading slash, ~, ./ or ../ and at least two parts; or
# a drive. C++ puts paths between parentheses and colons. Each part begins only after a character that cannot belong to
# it, so that a long name is read once and not once from each of its characters.
_STOP = r"\s'\"(),:;|<>*?\[\]{}`"
_PATHS = re.compile(
    r"(?:(?<![A-Za-z0-9+.-])(?:[A-Za-z0-9+.-]+://|(?:https?|s3|gs|ftp|ssh|git):/)[^\s\"<>`]*[^\s\"<>`'(),.:;*?\[\]{}|]"
    rf"|[A-Za-z]:\\[^{_STOP}]+|\\\\[^{_STOP}]+\\[^{_STOP}]+"
    rf"|(?<![\w/<>.)\]-])(?:~[\w.-]*|\.{{1,2}})?/(?:[^/{_STOP}]+/)+[^/{_STOP}]*"
    rf"|(?<![\w/<>.)\]-])~[\w.-]*/[^/{_STOP}]+"
    r"|(?<![\w/\\.+-])[\w.+-]+(?:[/\\][\w.+-]+)*\.(?:py|pyc|ipynb|sh|bash|cu|cuh|cc|cpp|cxx|hpp"
    r"|so(?:\.\d+)*|ya?ml|toml|json|jsonl|csv|txt|log|ckpt|pth?|safetensors|gz|zip|tar|parquet|conf|cfg|ini|env|pem|key)"
    r"(?:(?=_\d+(?!\w))|(?![\w/])))"
)
# A mailbox may have ' and + in its name (RFC 5322), of at most 64 characters, and begin with a digit.
_AT = re.compile(
    r"(?<![\w.@-])(?P<user>[A-Za-z][\w.'+%-]{0,63}(?=@[A-Za-z])|\d[\w.'+%-]{0,63}(?=@[\w-]+\.[A-Za-z]))@(?P<host>\w[\w.-]*)"
)
_HOME = re.compile(
    r"(?:/home/|/Users/|/users/|[A-Za-z]:\\Users\\|/scratch/|/work/users/|~)(?P<user>[\w.-]{2,})(?=[/\\]|$)"
)
_SETTING = re.compile(r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=(?P<user>[\w.-]{2,})")
_HOST_SETTING = re.compile(r"\b(?:HOSTNAME|HOST|MASTER_ADDR)=(?P<host>[\w.-]{2,})")
_COMMAND = re.compile(
    r"(?:^|[\s/])(?:python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|horovodrun|srun|sbatch|bash|sh|ray|docker)\s+\S"
    r"|(?:^|\s)--?[A-Za-z][\w-]*(?:[=\s]\S|$)|(?:^|\s)[A-Z][A-Z0-9_]{2,}=\S"
)
_WORD = re.compile(r"[A-Za-z]+")
WINDOW_WORDS = frozenset({"async", "sync", "window", "step", "steps", "cycle", "epoch", "warmup", "rank"})
_DEVICE_WORD = re.compile(r"[A-Za-z0-9]+")
_MAKERS = """
nvidia tesla geforce quadro titan rtx gtx grid tegra orin super ti gb sxm pcie nvl hbm dgxs dgx mig graphics device
amd instinct radeon pro vega xt xtx oam intel r tm data center gpu cpu max flex arc iris xe habana labs hpu gaudi hl
mtia artemis meta cuda rocm xpu accelerator superchip server edition workstation generation ada generic of with
"""
_MODEL = re.compile(r"[A-Z]{0,3}\d{1,5}[A-Za-z]{0,3}|[A-Za-z]?")
_SUFFIX = re.compile(r"(?:\.pt)?(?:\.trace)?(?:\.json|\.csv)(?:\.gz)?$|\.gz$")
_OWN = frozenset(
    {
        "definition",
        "advice",
        "title",
        "unit",
        "polarity",
        "code",
        "severity",
        "provenance",
        "excluded",
        "standing",
        "fix",
    }
)
"""Fields that hold hpuprof's own words."""
_PROSE = frozenset({"sentence", "population", "evidence", "text", "gate"})
"""Fields of rows in hpuprof's words, which may quote names: no command line begins in them."""


class Redactor:
    """Replaces secrets that it has learned, and whatever looks like a path, an address or a command line."""

    def __init__(self) -> None:
        kinds = ("file", "command", "thread", "window", "host", "user")
        self._secrets: dict[str, set[str]] = {kind: set() for kind in kinds}
        self._tokens: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._known: re.Pattern[str] | None = None
        self._folded: dict[str, str] = {}
        self._done: dict[tuple[str, bool], str] = {}

    def learn_file(self, path: str, host: str | None = None) -> None:
        """Learn a trace's path and the host that its name or content gives."""
        name = path.replace("\\", "/").rsplit("/", 1)[-1]
        self._add("file", path)
        self._add("file", name)
        parts = parse_name(name)
        # Whether or not the name's form says so: what stands before a number may be a host.
        before = parts.worker.rpartition("_")[0] if parts.number is not None else parts.worker
        for found in (host, before):
            if found and not _usual(found):
                self._add("host", found)
        self.learn_text(path)

    def learn_text(self, text: str) -> None:
        """Learn the users and hosts that a text gives away."""
        for pattern in (_HOME, _SETTING, _AT):
            for match in pattern.finditer(text):
                if match["user"].lower() not in ("root", "user", "users", "home"):
                    self._add("user", match["user"])
        for pattern in (_HOST_SETTING, _AT):
            for match in pattern.finditer(text):
                self._add("host", match["host"])

    def learn_name(self, text: str) -> None:
        """Learn from a name that a trace gave: a command line in it is one secret."""
        self.learn_text(text)
        if _COMMAND.search(text):
            self._add("command", text)

    def learn_thread(self, text: str) -> None:
        """Learn the name of a process or thread, unless it is a usual one."""
        if _usual(text):
            return
        self.learn_name(text)
        if text not in self._secrets["command"]:
            self._add("thread", text)

    def _add(self, kind: str, secret: str) -> None:
        if secret and secret not in self._secrets[kind]:
            self._secrets[kind].add(secret)
            self._known = None
            self._done.clear()

    def _number(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}-{self._numbers[kind]}"

    def _token(self, kind: str, secret: str) -> str:
        if secret not in self._tokens:
            suffix = _SUFFIX.search(secret) if kind == "file" else None
            self._tokens[secret] = self._number(kind) + (suffix.group() if suffix else "")
        return self._tokens[secret]

    def _pattern(self) -> re.Pattern[str]:
        """Return what matches every learned secret as a word of its own, longer ones first."""
        if self._known is None:
            found = []
            for kind, secrets in self._secrets.items():
                for secret in sorted(secrets):
                    if len(secret) > 2 and secret.lower() not in ("localhost", "cpu", "gpu", "hpu", "host", "python"):
                        found.append(secret)
                        self._token(kind, secret)
            found.sort(key=lambda s: (-len(s), s))
            self._known = re.compile(
                "|".join(rf"(?<![A-Za-z0-9]){re.escape(s)}(?![A-Za-z0-9])" for s in found) or r"(?!)", re.IGNORECASE
            )
            self._folded = {s.lower(): t for s, t in self._tokens.items()}
        return self._known

    def text(self, text: str, *, name: bool = True) -> str:
        """Return a text without secrets. `name`: the text is a name from a trace, which may be a command line."""
        key = (text, name)
        if key not in self._done:
            if name and _COMMAND.search(text):
                self._done[key] = self._token("command", text)
            else:
                known = self._pattern().sub(lambda m: self._folded[m.group().lower()], text)
                without = self._without("key", keys(known), known)
                paths = _PATHS.sub(lambda m: self._path(m.group()), without)
                self._done[key] = self._without("host", hosts(paths), paths)
        return self._done[key]

    def _without(self, kind: str, spans: Iterable[tuple[int, int]], text: str) -> str:
        """Return a text with tokens in place of secrets; spans that overlap are one."""
        joined: list[list[int]] = []
        for low, high in sorted(spans):
            if joined and low < joined[-1][1]:
                joined[-1][1] = max(high, joined[-1][1])
            else:
                joined.append([low, high])
        pieces, end = [], 0
        for low, high in joined:
            pieces += [text[end:low], self._token(kind, text[low:high])]
            end = high
        return "".join([*pieces, text[end:]])

    def _path(self, path: str) -> str:
        return path if re.fullmatch(r"file-\d+\S*", path) else self._token("path", path)

    def whole(self, kind: str, text: str) -> str:
        """Return the token of a value that is a secret entirely."""
        self._add(kind, text)
        return self._token(kind, text)

    def device(self, text: str) -> str:
        """Return a device's name with words that no maker uses as tokens: one of them may be a host."""
        return _DEVICE_WORD.sub(lambda m: m[0] if _of_makers(m[0]) else self._token("device", m[0]), self.text(text))

    def window(self, text: str) -> str:
        """Return a window's name, or its token when its words are not the recorder's."""
        usual = all(word in WINDOW_WORDS for word in _WORD.findall(text.lower()))
        return self.text(text, name=False) if usual else self.whole("window", text)

    def thread(self, text: str) -> str:
        """Return the name of a process or thread, or its token."""
        if _usual(text):
            return self.text(text, name=False)  # there may be an address among usual words
        return self.text(text) if _COMMAND.search(text) else self.whole("thread", text)


def _usual(name: str) -> bool:
    """Whether the name of a thread consists of usual words and numbers."""
    return all(word.lower() in THREAD_WORDS for word in _WORD.findall(name))


def _of_makers(word: str) -> bool:
    """Whether a word occurs in names of devices: Tesla, SXM4, 80GB, MI250X."""
    if _MODEL.fullmatch(word) or re.fullmatch(r"(?:host|key|user|path|file|device|thread|command|window)|\d+", word):
        return True
    return word.lower().rstrip("0123456789") in _MAKERS.split()


@checked(report=Kind("a Report", made_of(Report)))
def redact(report: Report) -> Report:
    """Return the report with hosts, paths, command lines and user names replaced by tokens; nothing else changes."""
    return redact_reports([report])[0]


def redact_reports(reports: Sequence[Report]) -> list[Report]:
    """Return the reports redacted as by `redact`; equal secrets have equal tokens in all of them."""
    redactor = Redactor()
    plain = [msgspec.to_builtins(report.data) for report in reports]
    for document in plain:
        _learn(redactor, document)
    return [Report(msgspec.convert(_apply(redactor, d, ""), type(r.data))) for r, d in zip(reports, plain, strict=True)]


def _learn(redactor: Redactor, document: dict[str, Any]) -> None:
    for row in document["files"]:
        redactor.learn_file(row["path"], row["host_name"])
        redactor.window(row["window"])
        for _, thread, _ in row["unknown"]:
            redactor.learn_thread(thread)
    for row in document["run_steps"]:  # a report of logs alone has no files
        redactor.learn_file(row["path"], row["host_name"])
    for row in document["diagnostics"]:
        if row["path"]:
            redactor.learn_file(row["path"])
    for row in document["engines"]:
        redactor.learn_thread(row["lane"])
    for field, text, row in _texts(document, "", row=False):
        if not row or field in _PROSE:
            redactor.learn_text(text)
        elif field not in _OWN:
            redactor.learn_name(text)


def _is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a row of a table: its texts are names from a trace; elsewhere the words are hpuprof's."""
    return "rank" in value and "window" in value


def _texts(value: Any, field: str, *, row: bool) -> Iterable[tuple[str, str, bool]]:
    if isinstance(value, str):
        yield field, value, row
    elif isinstance(value, dict):
        for key, inner in value.items():
            if field in ("categories", "ignored", "set_aside"):
                yield field, key, row
            yield from _texts(inner, key, row=row or _is_row(value))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, field, row=row)


def _apply(redactor: Redactor, value: Any, field: str, *, row: bool = False) -> Any:
    if isinstance(value, str):
        if field in _OWN or not value:
            return value
        if field == "path":
            return redactor.whole("file", value)
        if field == "host_name":
            return redactor.whole("host", value)
        if field in ("device_name", "device"):
            return redactor.device(value)
        if field in ("window", "windows"):
            return redactor.window(value)
        if field == "lane":
            return redactor.thread(value)
        return redactor.text(value, name=row and field not in _PROSE)
    if isinstance(value, dict):
        if field in ("categories", "ignored", "set_aside"):
            out: dict[str, Any] = {}
            for key, count in value.items():
                token = redactor.text(key)
                out[token] = out.get(token, 0) + count
            return out
        return {key: _apply(redactor, inner, key, row=row or _is_row(value)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        if field == "unknown" and len(value) == 3 and isinstance(value[2], int):
            return redactor.text(value[0]), redactor.thread(value[1]), value[2]
        return [_apply(redactor, inner, field, row=row) for inner in value]
    return value
