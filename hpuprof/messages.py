"""Makes text safe to show: no terminal sequences, no line breaks, no passwords or signatures.

File names, names in traces and other libraries' exceptions are foreign text. Code that prints such text sends it
through `visible`; text that may hold an address goes through `without_secrets`. Owns no message itself.
"""

from __future__ import annotations

import codecs
import re
from typing import TextIO

# Control characters, marks that reorder or hide text in terminals and browsers, and halves of characters. Compiled
# here, as all that is said needs it: where memory ended inside of a call, CPython 3.11 may not survive deeper ones.
_HOSTILE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Texts, so that `re` compiles them when they are used first.
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{1,40}"
_ADDRESS = rf"{_SCHEME}://?[^\s'\"<>]*"  # a Path keeps one of the two slashes
_CHAINED = rf"::(?={_SCHEME}(?:::|://))"
_PORT = r"[^:]*(?::\d*)?|\[[^\]]*\](?::\d*)?"
_WEB = ("http", "https")
_LINE = 200
SPELLED = "hpuprof.spelled"
"""Handles what an encoding lacks: our own signs are spelled with others, all else is escaped as in JSON."""
_SPELLING = {
    "→": "->",
    "−": "-",
    "–": "-",
    "×": "x",
    "µ": "u",
    "±": "+-",
    "≥": ">=",
    "≤": "<=",
    "…": "...",
    "█": "#",
    "▓": "=",
    "▒": "+",
    "░": "-",
    "·": ".",
    "│": "|",
    "━": "-",
    "“": "'",
    "”": "'",
}


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_SPELLING.get(sign) or _escaped(sign) for sign in signs), error.end


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


codecs.register_error(SPELLED, _spell)


def speak(stream: TextIO) -> None:
    """Let a stream write what its encoding lacks in other signs, where it can be one_line to, rather than fail."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=SPELLED)


def visible(text: str) -> str:
    r"""Escape control characters, line breaks, direction marks and surrogates, so that no name steers a terminal.

    A backslash stays what it is, so that paths stay readable; the text can be encoded whatever it held.
    """
    return _HOSTILE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def bare_address(address: str) -> str:
    """Return a URL without user, password, fragment and query, which may hold secrets; also chained ones (`a::b://`).

    Outside the web a `?` without a `=` behind it is part of a pattern and stays.
    """
    kind, mark, rest = re.split(r"(://?)", address, maxsplit=1) if ":/" in address else (address, "", "")
    if not mark:
        return address
    tail = ""
    inner = re.search(_CHAINED, rest)
    if inner:
        rest, tail = rest[: inner.start()], "::" + bare_address(rest[inner.end() :])
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        rest = rest[authority.rindex("@") + 1 :]
    elif "@" in rest and not re.fullmatch(_PORT, authority):
        rest = rest[rest.rindex("@") + 1 :]  # a password that holds / ? or #, which should have been quoted
    rest = rest.partition("#")[0]
    path, question, query = rest.partition("?")
    keep = question and kind.rpartition("::")[2].lower() not in _WEB and "=" not in query
    return f"{kind}{mark}{rest if keep else path}{tail}"


def without_secrets(text: str) -> str:
    """Return text with every URL in it as `bare_address` shows it."""
    return re.sub(_ADDRESS, _bare_match, text) if ":/" in text else text


def _bare_match(found: re.Match[str]) -> str:
    address = found[0].rstrip(":;,.)]}")
    return bare_address(address) + found[0][len(address) :]


def one_line(error: BaseException) -> str:
    """Return what another library's exception says as one short line: no secrets, no bytes of what a server sent."""
    text = " ".join((str(error).splitlines() or [""])[0].split())
    text = without_secrets(re.split(r"\bb['\"]", text, maxsplit=1)[0]).rstrip(" ,:=")
    if len(text) > _LINE:
        text = text[: _LINE - 1] + "…"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
