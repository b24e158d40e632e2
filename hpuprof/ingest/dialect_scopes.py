"""Where in the model a graph's node stems from, by the names that HPU's graph compiler gives nodes.

`EventName` of a device row is the node with the modules around it, `layers/2/attention/matmul`; a node that the
compiler cut into pieces goes on with `_bundle_<n>/op_<m>`, one that it fused may begin with `fusedTPCNode_<n>_<m>/`.
`Original Nodes` names those that were fused into one.
"""

from __future__ import annotations

import re
from posixpath import commonpath

from hpuprof.ingest.dialect_engines import LONGEST

_PIECE = re.compile(r"_bundle_\d+/op_\d+.*$", re.DOTALL)
_FUSED = re.compile(r"^fusedTPCNode_\d+_\d+/")
_BETWEEN = re.compile(r"[\s,;]+")
"""What parts names of nodes; by judgment, as no published file shows it."""


def scope_of(node: str, sources: str = "") -> str:
    """Return a node's path of modules and operation, the same for all pieces of it; empty for none.

    `sources`: names of the nodes that were fused into it, for a node without modules: the path that all of them share.
    """
    path = _FUSED.sub("", _path(node))
    return path if "/" in path or not sources else _shared(sources) or path


def _path(node: str) -> str:
    return _PIECE.sub("", node[:LONGEST]).strip("/ ")


def _shared(sources: str) -> str:
    paths = [path for node in _BETWEEN.split(sources[:LONGEST]) if (path := _path(node))]
    return commonpath(paths) if paths else ""
