"""Files that are made when they are needed: each shape is harmless small and once cost more than its size when it grew.

`size` is chosen so that what grows with the square would pass `cpu_s` many times over, and what grows with the size
stays far below; `benchmarks/growth.py` doubles the sizes and prints the ratios.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One shape: how it is made and what each command may use for it."""

    name: str
    make: Callable[[int], bytes]
    size: int
    cpu_s: int
    memory_mib: int = 500
    commands: tuple[str, ...] = ("analyze",)
    exits: tuple[int, ...] = (0,)
    file_name: str = "rank0.pt.trace.json"


CASES: list[Case] = []


def grows(
    size: int,
    *,
    cpu_s: int,
    memory_mib: int = 500,
    commands: tuple[str, ...] = ("analyze",),
    exits: tuple[int, ...] = (0,),
    file_name: str = "rank0.pt.trace.json",
) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Add a shape to the corpus."""

    def add(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
        CASES.append(Case(make.__name__, make, size, cpu_s, memory_mib, commands, exits, file_name))
        return make

    return add


READERS = ("analyze", "inspect", "merge", "check", "convert", "export")
_ROW = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":5,"dur":3}'


@grows(1_200_000, cpu_s=5, commands=READERS)
def lists_of_objects_in_the_last_row(size: int) -> bytes:
    """Valid JSON; every `}]` in the arguments might end the array."""
    lists = ",".join(f'"k{i}":[{{"x":1}}]' for i in range(size // 18))
    return f'{{"traceEvents":[{_ROW},{_ROW[:-1]},"args":{{{lists}}}}}]}}'.encode()


@grows(300_000, cpu_s=5, commands=READERS)
def rows_within_rows_that_never_end(size: int) -> bytes:
    """The file ends inside arguments of arguments, each of which looks like a row."""
    inner = '{"args":[{"x":1}],"name":['
    return (f'{{"traceEvents":[{_ROW},' + inner * (size // len(inner))).encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_key_of_spaces_that_the_end_cuts(size: int) -> bytes:
    return f'[{_ROW},{{"{" " * size}x":5'.encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_header_of_spaces(size: int) -> bytes:
    return f'{{{" " * size}x "traceEvents":[{_ROW}]}}'.encode()


@grows(1_500_000, cpu_s=10, commands=READERS)
def many_members_behind_the_events(size: int) -> bytes:
    """The last of them is broken, so that they are read one by one."""
    members = ",".join(f'"k{i}":{i}' for i in range(size // 14))
    return f'{{"traceEvents":[{_ROW}],{members},"z":nope}}'.encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_broken_row_of_many_names(size: int) -> bytes:
    names = '"name":"a,' * (size // 10)
    return f'[{_ROW},{{"ph":"X","ts":1,"dur":1,{names}}},{_ROW}]'.encode()


@grows(400_000, cpu_s=5, commands=READERS)
def a_broken_row_that_ends_in_spaces(size: int) -> bytes:
    return f'[{_ROW},{{"ph":"X","ts":1,"dur":1,"name":"a"b"}}{" " * size}x,{_ROW}]'.encode()


@grows(4_000_000, cpu_s=8, commands=READERS)
def one_long_name(size: int) -> bytes:
    name = "[LightningDataModule]" * (size // 21)
    return f"[{_ROW},{_ROW.replace('cpu_op', 'user_annotation').replace('aten::mm', name)}]".encode()


@grows(100_000, cpu_s=5, commands=READERS)
def a_collective_named_by_digits(size: int) -> bytes:
    return f"[{_ROW},{_ROW.replace('aten::mm', 'nccl:send ' + '1' * size)}]".encode()


@grows(2_000_000, cpu_s=5, commands=("merge", "check", "export"))
def ends_that_fit_none_of_the_open_begins(size: int) -> bytes:
    each = '{"ph":"%s","cat":"cpu_op","name":"%s%d","pid":1,"tid":1,"ts":%d}'
    count = size // 130
    marks = [each % ("B", "b", i, i) for i in range(count)] + [each % ("E", "e", i, count + i) for i in range(count)]
    return f"[{_ROW},{','.join(marks)}]".encode()


@grows(6_000_000, cpu_s=8, commands=READERS)
def a_category_for_every_row(size: int) -> bytes:
    rows = (_ROW.replace('"cpu_op"', f'"c{i}"') for i in range(size // 75))
    return f"[{_ROW},{','.join(rows)}]".encode()


_CSV = b"Name,Engine,Event type,Timestamp[usec]\n"
_PAIR = b"n,[HD0] TPC 0,BEGIN,1\nn,[HD0] TPC 0,END,5\n"


@grows(160 << 20, cpu_s=8, commands=READERS, file_name="rank0.csv")
def a_csv_with_one_long_line(size: int) -> bytes:
    return _CSV + _PAIR + b"x" * size + b"\n" + _PAIR


def _bomb(head: bytes, size: int, tail: bytes) -> bytes:
    """Compress `size` letters between two texts without ever holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"A" * (1 << 20)
    parts = [packer.compress(head), *(packer.compress(block) for _ in range(size >> 20)), packer.compress(tail)]
    return b"".join(parts) + packer.flush()


@grows(1 << 29, cpu_s=25, memory_mib=400, commands=READERS, file_name="rank0.pt.trace.json.gz")
def a_bomb_behind_the_events(size: int) -> bytes:
    return _bomb(f'{{"traceEvents":[{_ROW}],"a":"'.encode(), size, b'"}')


@grows(1 << 28, cpu_s=20, memory_mib=400, commands=READERS, exits=(3,), file_name="rank0.pt.trace.json.gz")
def a_bomb_before_the_events(size: int) -> bytes:
    return _bomb(b'{"a":"', size, f'","traceEvents":[{_ROW}]}}'.encode())


@grows(1 << 27, cpu_s=25, memory_mib=400, commands=READERS, file_name="rank0.pt.trace.json.gz")
def a_bomb_in_a_row(size: int) -> bytes:
    return _bomb(f'[{_ROW},{_ROW[:-1]},"a":"'.encode(), size, f'"}},{_ROW}]'.encode())
