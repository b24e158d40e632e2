"""Short names of C++ kernels: the function, what it applies and the floating types; mangled names are read, too.

Owns the words that people read. Tables, JSON and whatever matches kernels keep the recorded names. A name that is not
C++ (operators, Triton's, Tensile's and cuBLAS' kernels, recipes) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_HEAD = re.compile(r"[A-Za-z_][\w:]*")
_NAMESPACE = re.compile(r"\((?:anonymous namespace|anonymous)\)::|\{anonymous\}::|\[abi:\w+\]")
_FLOATS = {
    "half": "half", "__half": "half", "half_t": "half", "Half": "half", "bfloat16": "bf16", "__nv_bfloat16": "bf16",
    "BFloat16": "bf16", "bfloat16_t": "bf16", "hip_bfloat16": "bf16", "__hip_bfloat16": "bf16", "float": "float",
    "double": "double", "tfloat32_t": "tf32", "Float8_e4m3fn": "fp8", "Float8_e5m2": "fp8", "float_e4m3_t": "fp8",
    "bf16": "bf16", "tf32": "tf32", "fp8": "fp8", "float_e5m2_t": "fp8", "__nv_fp8_e4m3": "fp8", "__nv_fp8_e5m2": "fp8",
    "__half2": "half", "half2": "half",
}  # fmt: skip
"""Floating types, as people write them."""
_OTHER_TYPES = re.compile(
    r"^(?:bool|char|short|u?int|long|unsigned|signed|void|auto|size_t|u?int(?:8|16|32|64)_t|decltype|std"
    r"|u?int[24]|float[24]|double2)$"
)
_PLUMBING = re.compile(
    r"^(?:[aA]rray|TrivialOffsetCalculator|OffsetCalculator|(?:Load|Store)With\w+|\w*TensorListMetadata|\w*ListMetadata"
    r"|tuple|integral_constant|integer_sequence|index_sequence|basic_string|allocator)$"
)
"""Template arguments that say how a kernel is fed, not what it does."""
_WRAPPER = re.compile(
    r"^(?:Kernel\d?|device_kernel|kentry|kernel|\w*kernel_impl\w*|gpu_index_kernel|_\w*scatter_gather_internal_kernel"
    r"|(?:Binary|Unary|AUnary|BUnary|Compare)Functor|ReduceOp|func_wrapper_t|WrapFunctor)$"
)
"""Templates that only apply their argument, which is named in their place."""
_BITS = re.compile(r"DF(?P<bits>\d+)(?P<kind>[_bx])")
"""Floating types by their bits: `_Float16`, `std::bfloat16_t`."""
_LAMBDA = re.compile(r"^\{lambda\((?P<types>.*)\)#\d+\}")
_TYPES = 2
"""Floating types named, at most."""
_BUILTIN = {"f": "float", "d": "double", "i": "int", "j": "int", "l": "long", "m": "long", "b": "bool", "c": "char"}
_COMPILED = re.compile(r"^## Call CompiledFxGraph (?P<first>\w{8})\w* ##$")
"""A graph that torch.compile made, by the key of its code."""
_TILED = re.compile(r"^(?P<of>C[a-z]+_A[a-z]+_B[a-z]+_[A-Z0-9]+)_.*?(?P<tile>MT\d+x\d+x\d+)_")
"""Matrix products of Tensile (ROCm): indices, types and options; a hundred numbers of its tuning follow the tile."""
_LONGEST = 20_000
"""Characters of a demangled name that is read; longer ones stay as they are."""
_DEEP = 40
"""Nested templates of a name that is read; deeper ones stay as they are."""


class _Name(NamedTuple):
    """A function or type: its last word, and its template arguments with the types of a lambda in it."""

    word: str
    args: tuple[_Name, ...] = ()


class _UnreadableError(Exception):
    """A mangled name uses what is not read here."""


@lru_cache(maxsize=4096)
def readable(name: str) -> str:
    """Return a kernel's name as people say it: `vectorized_elementwise_kernel<FillFunctor<float>>`.

    Namespaces, parameters, numbers and plumbing are left out; what is not a C++ name is returned unchanged, but for the
    key of a compiled graph, of which the first characters stay, and the tuning of a Tensile kernel behind its tile.
    """
    compiled, tiled = _COMPILED.match(name), _TILED.match(name)
    if compiled is not None:
        return f"compiled graph {compiled['first']}"
    if tiled is not None:
        return f"{tiled['of']}_{tiled['tile']}"
    if not _is_cpp(name):
        return name
    try:
        found = _Mangled(name).function() if name.startswith("_Z") else _function(name)
    except (_UnreadableError, RecursionError):
        return name
    return _said(found, 0) if found.word else name


def _is_cpp(name: str) -> bool:
    """Whether a name is a mangled one, or a demangled template or function with its parameters."""
    if name.startswith("_Z"):
        return name[2:3].isdigit() or name[2:3] in ("N", "L", "Z")
    if len(name) > _LONGEST:
        return False
    if name.startswith("void "):
        return "(" in name or "<" in name  # some recorders cut long names
    if not name.endswith((")", ">", "]")):
        return False
    head = _HEAD.match(name := _NAMESPACE.sub("", name))
    if head is None:
        return False
    rest = name[head.end() :]
    return rest.startswith("<") or (rest.startswith("(") and ("::" in rest or "*" in rest))


def _said(name: _Name, depth: int) -> str:
    applied = [a for a in name.args if _applies(a)]
    if applied and _WRAPPER.match(name.word):
        return _said(applied[0], depth)
    if applied and depth == 0:
        return f"{name.word}<{_said(applied[0], 1)}>"
    types = list(dict.fromkeys(_floats(name)))[:_TYPES] or [a.word for a in name.args if _OTHER_TYPES.match(a.word)][:1]
    return f"{name.word}<{', '.join(types)}>" if types and types != ["std"] else name.word


def _applies(arg: _Name) -> bool:
    """Whether a template argument says what the kernel does."""
    return (
        bool(arg.word)
        and arg.word not in _FLOATS
        and not _OTHER_TYPES.match(arg.word)
        and not _PLUMBING.match(arg.word)
    )


def _floats(name: _Name, depth: int = 0) -> Iterator[str]:
    for arg in name.args:
        if arg.word in _FLOATS:
            yield _FLOATS[arg.word]
        elif depth < _DEEP and not _PLUMBING.match(arg.word):
            yield from _floats(arg, depth + 1)


def _function(text: str) -> _Name:
    """Return a demangled function without its return type and parameters."""
    text = _NAMESPACE.sub("", text)
    before = next(iter(_parts(text, "(", most=1)), text)
    return _type(_parts(before.strip(), " ")[-1] if before.strip() else "")


def _type(text: str) -> _Name:
    """Return a demangled type or function, by the last of its words that has a name."""
    more: list[_Name] = []
    for part in map(str.strip, reversed(_parts(text.strip(), "::"))):
        if found := _LAMBDA.match(part):
            more = more or [_type(of) for of in _parts(found["types"], ",") if of.strip()]
            continue
        if part.startswith(("operator", "{", "(")) or not part:
            continue
        word = re.split(r"[<(]", part, maxsplit=1)[0].strip(" *&")
        words = [w for w in word.split() if w not in ("const", "volatile", "unsigned", "signed", "struct", "class")]
        word = words[0] if words else ""
        if not word or word[0].isdigit() or word[0] == "-" or word in ("true", "false"):
            return _Name("")
        inside = _inside(part)
        return _Name(word, (*(_type(arg) for arg in _parts(inside, ",")), *more) if inside else tuple(more))
    return _Name("")


def _inside(text: str) -> str:
    """Return the template arguments of the last word of a type; of a name that was cut, those before the cut."""
    start = text.find("<")
    if start < 0 or "(" in text[:start]:
        return ""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if depth == 0:
            return text[start + 1 : at]
    parts = _parts(text[start + 1 :], ",")
    return ",".join(parts if re.search("[<(]", parts[-1]) else parts[:-1])  # its own name may be whole


def _parts(text: str, mark: str, most: int = 0) -> Sequence[str]:
    """Split a text at a mark that no bracket encloses; `most`: parts to look for, 0 for all."""
    found, depth, since, at = [], 0, 0, 0
    while at < len(text):
        if depth == 0 and text.startswith(mark, at):
            found.append(text[since:at])
            at += len(mark)
            since = at
            if len(found) == most:
                return found
            continue
        depth += (text[at] in "<({") - (text[at] in ">)}")
        depth = max(depth, 0)
        at += 1
    return [*found, text[since:]]


class _Mangled:
    """Reads the name of a function by the Itanium C++ ABI (section 5.1), as far as templates and their arguments go.

    Parameters of the function are not read, nor are substitutions resolved: they repeat what was named before. Of a
    name that the recording cut off, what is whole is read.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 2

    def function(self) -> _Name:
        """Return the function. Raises `_UnreadableError`."""
        return self._name(0)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, word: str) -> bool:
        if word == "E" and self._at >= len(self._text):
            return True
        if self._text.startswith(word, self._at):
            self._at += len(word)
            return True
        return False

    def _number(self) -> int:
        digits = re.compile(r"\d+").match(self._text, self._at)
        if digits is None or len(digits[0]) > 4:
            raise _UnreadableError
        self._at = digits.end()
        return int(digits[0])

    def _name(self, depth: int) -> _Name:
        """Return a name: nested, local to a function, or plain with its template arguments."""
        if depth > _DEEP:
            raise _UnreadableError
        if self._take("N"):
            while self._peek() in ("K", "V", "r", "R", "O"):
                self._at += 1
            return self._nested(depth)
        if self._take("Z"):  # local: the function, its parameters, and what is inside
            outer = self._encoding(depth)
            inner = _Name("") if self._take("s") else self._name(depth + 1)
            return _Name(outer.word, (*outer.args, *inner.args)) if not inner.word else inner
        return self._plain(depth)

    def _nested(self, depth: int) -> _Name:
        """Return the last name of a nested one, which `E` ends."""
        found = _Name("")
        while not self._take("E"):
            if self._peek() == "I":
                self._at += 1
                found = _Name(found.word, (*found.args, *self._arguments(depth + 1)))
            elif self._take("cl") or self._take("C1") or self._take("C2"):
                continue
            else:
                found = self._part(depth, found)
        return found

    def _plain(self, depth: int) -> _Name:
        """Return a name of one part, with its template arguments."""
        self._take("St")
        found = self._part(depth, _Name(""))
        if self._take("I"):
            found = _Name(found.word, (*found.args, *self._arguments(depth + 1)))
        return found

    def _part(self, depth: int, before: _Name) -> _Name:
        """Return a part of a name; of a lambda, what it is in, with the types that it takes."""
        if self._take("Ul"):
            types = []
            while not self._take("E"):
                types.append(self._type(depth + 1))
            self._discriminator()
            return _Name(before.word, (*before.args, *types))
        if self._peek() == "S":
            self._substitution()
            return before
        self._take("L")
        word = self._word()
        while self._take("B"):  # a tag of the interface
            self._word()
        return before if word.startswith("_GLOBAL__N") else _Name(word)

    def _discriminator(self) -> None:
        end = self._text.find("_", self._at)
        if end < 0:
            raise _UnreadableError
        self._at = end + 1

    def _word(self) -> str:
        length = self._number()
        word = self._text[self._at : self._at + length]
        self._at += length
        return word if len(word) == length else ""

    def _substitution(self) -> None:
        found = re.compile(r"S(?:[tabsiod]|[0-9A-Z]*_)").match(self._text, self._at)
        if found is None:
            raise _UnreadableError
        self._at = found.end()

    def _arguments(self, depth: int) -> list[_Name]:
        found = []
        while not self._take("E"):
            if self._take("J"):
                found += self._arguments(depth + 1)
            elif self._take("XadL_Z"):  # the address of a function
                found.append(self._encoding(depth))
                self._take("E")
            elif self._take("X"):
                raise _UnreadableError
            elif self._take("L_Z"):
                self._encoding(depth)
            elif self._take("L"):
                self._type(depth + 1)
                self._at = 1 + end if (end := self._text.find("E", self._at)) >= 0 else len(self._text)
            elif self._take("Tn"):  # the type of the value that follows
                self._type(depth + 1)
            else:
                found.append(self._type(depth))
        return found

    def _encoding(self, depth: int) -> _Name:
        """Return a function, with its parameters behind it, which `E` ends."""
        found = self._name(depth + 1)
        while not self._take("E"):
            self._type(depth + 1)
        return found

    def _type(self, depth: int) -> _Name:
        if depth > _DEEP:
            raise _UnreadableError
        while self._peek() in ("P", "R", "O", "K", "V"):
            self._at += 1
        mark = self._peek()
        if self._take("F"):
            while not self._take("E"):
                self._type(depth + 1)
            return _Name("")
        if self._take("Dp"):
            return self._type(depth + 1)
        if bits := _BITS.match(self._text, self._at):
            self._at = bits.end()
            word = {"16b": "bf16", "16_": "half", "32_": "float"}.get(bits["bits"] + bits["kind"], "")
            return _Name(word)
        if mark == "D":
            self._at += 2
            return _Name("")
        if mark == "T":
            self._discriminator()
            return _Name("")
        if mark == "A":
            self._discriminator()
            return self._type(depth + 1)
        if mark == "S":
            if self._text.startswith("St", self._at):
                return self._plain(depth)
            self._substitution()
            if self._take("I"):
                self._arguments(depth + 1)
            return _Name("")
        if mark.isdigit() or mark in ("N", "Z"):
            return self._name(depth + 1)
        if mark.islower():
            self._at += 1
            return _Name("" if mark == "v" else _BUILTIN.get(mark, "int"))
        raise _UnreadableError
