"""Finds host names and addresses in a text, in linear time; `hpuprof.report.redact` replaces them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address, IPv6Network, ip_address

# Wide patterns; `ip_address` and `_is_name` decide on their matches. Underscores are not part of an address and may
# adjoin it.
_V4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_CANDIDATE = re.compile(
    r"(?<![0-9A-Za-z:])(?P<mac>[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,19})(?![0-9A-Za-z:])"
    r"|(?<![0-9A-Za-z.-])(?P<mac_spelled>[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5,19}|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})"
    r"(?![0-9A-Za-z-]|\.\w)"
    rf"|(?<![0-9A-Za-z:.])(?P<v6>(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}(?:{_V4}|[0-9A-Fa-f]{{1,4}}|(?<=::))(?:%[0-9A-Za-z]+)?)"
    r"(?![0-9A-Za-z]|:[0-9A-Fa-f:]|\.\d)"
    rf"|(?<![\d.])(?P<v4>{_V4})(?!\.?\d)"
    r"|(?<![0-9A-Za-z])(?P<name>ip-\d{1,3}(?:-\d{1,3}){3})(?!\d)"  # AWS host names
)
_NAT64 = IPv6Network("64:ff9b::/96")
_VERSIONED = re.compile(
    r"(?i)(?:^|[\W_])(?:v|ver|version|release|build|cuda|cudnn|cublas\w{0,3}|nccl|rccl|hccl|oneccl|onednn|mkl|rocm|hip|miopen|"
    r"synapse(?:ai)?|habana\w{0,12}|driver|firmware|fw|torch\w{0,9}|pytorch|triton|python|lightning|linux|kernel|ofed|libfabric|"
    r"ucx|efa|mpi|openmpi)[ \t:=/_-]{0,3}v?$"
)

# The last word of a full host name. A dotted name may also be a Python path (torch.nn.functional) or an operator's
# overload (aten::to.dtype): the more usual its last word is there, the more must show that it is a host.
_DOTTED = re.compile(r"(?<![0-9A-Za-z.$-])(?<!::)(?:[0-9A-Za-z-]+\.)+[A-Za-z]+(?![0-9A-Za-z(]|::)")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_OPEN = re.compile("com|org|edu|gov|mil")
_CLOUDS = re.compile(r".*\.(?:(?:windows|cloudapp|azure|azureml|ts)\.net|cluster\.local|(?:ec2|compute)\.internal)")
_PRIVATE = re.compile("internal|intranet|localdomain|lan|corp|arpa|consul")
_NATIONAL = re.compile("de|uk|fr|jp|cn|kr|nl|ch|ru|eu|tw|cz|dk|fi|pl|br|au|us")
_USUAL = re.compile("local|home|private|cluster|svc")
_ANY = re.compile("[a-z]{2}|net|dev|cloud|tech|app|info|biz|host|site|online|systems|network|computer|science|xyz")
_HOSTLY = re.compile(r"(?:node|host|worker|gpu|hpu|compute|login|srv|server|vm|dgx|hls|rack|www|nas|nfs)\d*\..*|.*-.*")
_NUMBERED = re.compile(r"(?!(?:path|key|file|user|command|thread|window|device)-)[a-z]+(?:-[a-z]+)*-\d+")
"""The first word of `worker-17.rack3.site`; our own tokens are none."""
_PACKAGES = re.compile(
    "torch|torchvision|torchaudio|habana|numpy|scipy|pandas|sklearn|google|tensorflow|jax|flax|triton|transformers"
    "|lightning|deepspeed|megatron|accelerate|diffusers|vllm|optimum|apex|self|model|module|nn|aten|at|std"
)


def hosts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of host addresses (IPv4, IPv6, hardware) and full host names; they may overlap.

    Four small numbers after a library's name or the word version are a version, unless they are private or followed by
    a port. C++ names such as `c10::add` fall into reserved parts of IPv6 and are skipped.
    """
    yield from _addresses(text)
    yield from _names(text)


def _names(text: str) -> Iterator[tuple[int, int]]:
    for match in _DOTTED.finditer(text):
        if _is_name(match[0].lower(), text[match.end() :][:2]):
            yield match.span()


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    for match in _CANDIDATE.finditer(text):
        if match["v4"] is not None:
            found = _is_v4(match["v4"], text[max(0, match.start() - 32) : match.start()], text[match.end() :][:2])
        elif match["v6"] is not None:
            found = _is_v6(match["v6"])
        elif match["mac_spelled"] is not None:
            found = _is_mac(match["mac_spelled"])
        else:
            found = True
        if found:
            yield match.span()


def _is_mac(text: str) -> bool:
    """Whether groups of hexadecimal digits are an address rather than sizes or words: a letter and a digit, or 02."""
    groups = re.split(r"[.-]", text)
    letters = any(c.isalpha() for c in text)
    return any(c.isdigit() for c in text) if letters else any(g[0] == "0" for g in groups)


def _is_name(name: str, after: str) -> bool:
    """Whether a dotted name is a host's by its last words, and by how much of it no Python name could have."""
    labels = name.split(".")
    last, many = labels[-1], len(labels) > 2
    if not all(map(_LABEL.fullmatch, labels)):
        return False
    if after[:1] == "_" and after[1:].isalpha() and "-" not in name:  # the last word goes on: torch.local_rank
        return False
    if many and _NUMBERED.fullmatch(labels[0]) and all(label[0].isalpha() for label in labels):
        return True
    if _PACKAGES.fullmatch(labels[0]):
        return False
    if _OPEN.fullmatch(last) or _CLOUDS.fullmatch(name):
        return True
    private = _PRIVATE.fullmatch(last)
    if many and (private or _NATIONAL.fullmatch(last)):
        return True
    hostly = _HOSTLY.fullmatch(name) is not None
    if private or _USUAL.fullmatch(last):
        return hostly or any(map(str.isdigit, labels[0]))
    return many and hostly and _ANY.fullmatch(last) is not None


def _is_v4(text: str, before: str, after: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    port = after[:1] == ":" and after[1:].isdigit()
    return port or address.is_private or not _VERSIONED.search(before)


def _is_v6(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if not isinstance(address, IPv6Address) or address.is_unspecified:
        return False
    return not address.is_reserved or address.is_loopback or address.ipv4_mapped is not None or address in _NAT64
