"""What holds of every answer on one screen and in 6 kB."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpuprof.render.brief import LIMIT, to_brief
from hpuprof.render.card import LINES, to_card
from hpuprof.report.model import Report


def fits(report: Report, width: int = 80) -> tuple[str, dict[str, Any]]:
    """Return the card and the brief after checking their room, that both begin with the answer, and their numbers."""
    card, brief = to_card(report, width=width), to_brief(report, ["traces"])
    assert card.count("\n") <= LINES * 80 // min(width, 80)
    assert max(len(line) for line in card.splitlines()) <= width
    assert "Graph mode" in card
    assert 100 < len(brief.encode()) <= LIMIT
    document = json.loads(brief)
    assert card.replace("\n", " ").startswith(report.answer.bound_sentence[:50].rstrip())
    assert document["headline"].startswith(report.headline.sentence[:60].rstrip())
    for name, value in document["metrics"].items():
        assert value == pytest.approx(report.metrics[name].value, rel=1e-3)
    taken = sum(row.order is not None for row in report.data.plan)
    assert len(document["plan"]) + document["left_out"].get("plan", 0) == taken
    return card, document
