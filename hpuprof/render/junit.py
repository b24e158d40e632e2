"""Gates as JUnit XML test cases: a failed gate is a failure, one that cannot be evaluated an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from hpuprof.render.formats import clean
from hpuprof.report.model import GateResult

# XML 1.0 has no place for these, not even escaped; `clean` takes care of the control characters.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", clean(text))


def to_junit(results: Sequence[GateResult], *, command: str) -> str:
    """Return a test suite named `hpuprof COMMAND`, a test case per gate; no times or hosts: same gates, same bytes."""
    failed = sum(r.outcome == "failed" for r in results)
    unknown = sum(r.outcome == "unknown" for r in results)
    counts = {"tests": str(len(results)), "failures": str(failed), "errors": str(unknown), "skipped": "0"}
    root = Element("testsuites", {"name": "hpuprof", **counts})
    suite = SubElement(root, "testsuite", {"name": f"hpuprof {command}", **counts})
    for result in results:
        case = SubElement(suite, "testcase", {"classname": f"hpuprof.{command}", "name": _text(result.gate)})
        if result.outcome == "failed":
            SubElement(case, "failure", {"message": _text(result.text), "type": "gate"}).text = _text(result.text)
        elif result.outcome == "unknown":
            SubElement(case, "error", {"message": _text(result.text), "type": "unknown"}).text = _text(result.text)
        else:
            SubElement(case, "system-out").text = _text(result.text)
    indent(root, space="  ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"
