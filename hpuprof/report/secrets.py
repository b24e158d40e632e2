"""Finds host addresses and access keys in a text, in linear time; `hpuprof.report.redact` replaces them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address, IPv6Network, ip_address

# Wide patterns; `ip_address` decides on their matches. Underscores are not part of an address and may adjoin it.
_V4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_CANDIDATE = re.compile(
    r"(?<![0-9A-Za-z:])(?P<mac>[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,19})(?![0-9A-Za-z:])"
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
_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"  # GitHub
    r"|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"  # GitLab, Slack
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"  # AWS, Google
    r"|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{16,}|sk-[\w-]{20,}"  # Hugging Face, npm, PyPI, OpenAI
    r"|eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)*"  # JSON web tokens (RFC 7519): a header that begins with {"
    r")"
)


def keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of access keys and tokens, in the forms that their issuers document."""
    for match in _KEYS.finditer(text):
        yield match.span()


def hosts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of host addresses: IPv4, IPv6, hardware.

    Four small numbers after a library's name or the word version are a version, unless they are private or followed by
    a port. C++ names such as `c10::add` fall into reserved parts of IPv6 and are skipped.
    """
    for match in _CANDIDATE.finditer(text):
        if match["v4"] is not None:
            found = _is_v4(match["v4"], text[max(0, match.start() - 32) : match.start()], text[match.end() :][:2])
        elif match["v6"] is not None:
            found = _is_v6(match["v6"])
        else:
            found = True
        if found:
            yield match.span()


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
