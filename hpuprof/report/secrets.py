"""Finds access keys, tokens and passwords in a text, in linear time; `hpuprof.report.redact` replaces them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise

_KEYS = re.compile(
    r"(?P<block>-{4,5} ?BEGIN [A-Z0-9 ]{1,60}-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]{1,60}-{4,5}|\Z))"
    r"|(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"  # GitHub
    r"|gl(?:pat|ptt|dt|rt|cbt|soat|imt|ft|agent)-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}"  # GitLab, Slack
    r"|A(?:KI|SI|BI|CC|GP|ID|RO|NP)A[0-9A-Z]{16}|(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/%]{8,}=*"  # AWS
    r"|AIza[\w-]{35}|GOCSPX-[\w-]{16,}|ya29\.[\w.-]{16,}|1//0[\w-]{20,}"  # Google
    r"|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{16,}|sk-[\w-]{20,}"  # Hugging Face, npm, PyPI, OpenAI
    r"|nvapi-[\w-]{16,}|dapi[0-9a-f]{32}(?:-\d)?|wandb_v\d_\w{16,}"  # NVIDIA, Databricks, Weights & Biases
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}"  # SendGrid, Stripe
    r"|hv[sb]\.[\w-]{20,}|dckr_pat_[\w-]{20,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{30,}"  # Vault, Docker, Groq
    r"|eyJ[\w-]{6,1000}\.[\w-]{6,}(?:\.[\w-]*)*"  # JSON web tokens (RFC 7519): a header that begins with {"
    r"|AAAA[A-Za-z0-9+/]{16,}=*"  # an SSH key (RFC 4253): begins with its kind's length in four bytes
    r")"
    r"|(?i:(?<![A-Za-z])(?:proxy-)?authorization\b[\"']?\s{0,3}[:=]\s{0,3})(?P<header>[^\r\n]+)"
    r"|(?i:(?<![A-Za-z])bearer\s{1,3})(?P<bearer>[A-Za-z0-9+/._~-]{8,}=*)"
    r"|(?i:(?<![A-Za-z])basic\s{1,3})(?P<basic>[A-Za-z0-9+/]{4,}=*)"
    r"|(?i:password|passwd|passphrase|(?:api|access|account|private|secret|subscription)[_-]?key|client[_-]?secret"
    r"|secret[_-]?access[_-]?key|(?:private|access|auth|session|security|refresh|id|api|secret|bot)[_-]?token"
    r"|x-amz-(?:signature|credential)|(?<![A-Za-z])(?:secret|sig|signature|pwd|token)(?![A-Za-z]))"
    r"[\"']?\s{0,3}(?:=(?!=)|:(?!:))\s{0,3}[\"']?(?P<value>[^\s\"'&;,<>(){}\[\]]{4,})",
    re.DOTALL,
)
_MANGLED_OR_LONG = re.compile(
    r"_Z[A-Z0-9][\w.$]*"  # a C++ name as compilers write it, which looks as random
    r"|(?<![A-Za-z0-9+/])(?P<long>[A-Za-z0-9+/]{32,}={0,2})"
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_TURNS = 0.45
"""Share of neighbors of different kinds (a, A, 0, sign) in a random text: 0.62 of base 64, below 0.45 in long words of
torch's names, such as FloatOrHalfToFused8BitRowwiseQuantizedSBFloatAvx2."""
_AWS_TURNS = 0.3
"""The same for AWS's secret keys, which have 40 characters, a sign among them."""


def keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of access keys and tokens; they may overlap.

    They have the form that their issuer documents, stand after a word such as `password=`, or are long and random.
    """
    yield from _issued(text)
    yield from _random(text)


def _issued(text: str) -> Iterator[tuple[int, int]]:
    for match in _KEYS.finditer(text):
        kind = match.lastgroup
        if kind in (None, "block"):
            yield match.span()
        elif kind and _is_value(kind, match[kind], match[0].lower()):
            yield match.span(kind)


def _is_value(kind: str, found: str, whole: str) -> bool:
    """Whether what stands after `Basic`, `Bearer` or a key's name is a secret, rather than a word or a count."""
    if kind == "basic":
        bare = found.rstrip("=")
        plain = b64decode(bare + "=" * (-len(bare) % 4)) if len(bare) % 4 != 1 else b""
        return plain.isascii() and b":" in plain
    if kind == "bearer":
        return len(found) >= 20 or any(map(str.isdigit, found))
    return kind == "header" or "pass" in whole or not found.replace(".", "").isdigit()


def _random(text: str) -> Iterator[tuple[int, int]]:
    for match in _MANGLED_OR_LONG.finditer(text):
        if (found := match["long"]) is not None and _is_random(found):
            yield match.span("long")


def _is_random(word: str) -> bool:
    digits = sum(map(str.isdigit, word))
    if _HEX.fullmatch(word):  # 0d1d2d3d..., as Triton ends its names, has few kinds of letters
        return digits >= 4 and len(set(word) - set("0123456789")) >= 4
    upper, lower = sum(map(str.isupper, word)), sum(map(str.islower, word))
    if min(upper, lower) < 0.1 * len(word) or not digits:
        return False
    kinds = [3 if not c.isalnum() else 2 if c.isdigit() else int(c.isupper()) for c in word]
    turns = sum(a != b for a, b in pairwise(kinds)) / len(kinds)
    return turns >= (_AWS_TURNS if len(word) == 40 and 3 in kinds else _TURNS)
