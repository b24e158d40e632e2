"""What a process is called, however often and in whatever order its metadata says so."""

from __future__ import annotations

import pytest

from hpuprof.ingest.process_names import ProcessNames

DEVICE, OTHER = "/device:HPU:0", "/device:HPU:1"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("", ""),
        ("n:a n:b n:a", "a"),
        ("l:a l:b l:a", "a"),
        ("l:a l:b", "a"),
        ("l:a n:b", "b"),
        ("n:b l:a", "b"),
        (f"n:{DEVICE} n:a", DEVICE),
        (f"n:{DEVICE} n:{OTHER} n:{DEVICE}", DEVICE),
        (f"n:{DEVICE} l:{OTHER}", OTHER),
        (f"l:{DEVICE} l:{OTHER}", OTHER),
        (f"l:{DEVICE} l:{OTHER} l:{DEVICE}", DEVICE),
    ],
)
def test_names_and_labels(said, name):
    names = ProcessNames()
    for kind, _, text in (word.partition(":") for word in said.split()):
        (names.add if kind == "n" else names.add_label)(text)
    assert names.name == name
