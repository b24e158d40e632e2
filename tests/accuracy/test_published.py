"""Published eager and graph times: the data file, the arithmetic of the score, and the closed form on it."""

from __future__ import annotations

import json

import pytest

from benchmarks.graph_mode import published

TABLE = published.rows()


def by_id(results):
    return {r.row["id"]: r for r in results}


def test_every_row_names_its_source_and_a_check_and_has_a_truth():
    assert len({r["id"] for r in TABLE}) == len(TABLE) == 37
    for row in TABLE:
        assert row["source"], row["id"]
        assert row["check"] in published.CHECKS, row["id"]
        assert {"eager", "eager_range", "step", "speedup"} & row.keys(), row["id"]


def test_the_gaudi_rows_follow_from_each_other_by_a_line():
    results = by_id(published.score(TABLE))
    # through (3.9, 9.747) and (1.3, 6.191): slope 1.36769, at 4.8 10.978; the others alike
    assert results["28"].predicted == pytest.approx(10.978, abs=5e-4)
    assert results["29"].predicted == pytest.approx(9.717, abs=5e-4)
    assert results["30"].predicted == pytest.approx(6.309, abs=5e-4)


def test_the_naive_ceiling_overstates_where_host_work_remains():
    sam = by_id(published.score(TABLE))["13"]
    assert sam.naive_speedup == pytest.approx(7.39, abs=0.01)
    assert sam.speedup == pytest.approx(4.48, abs=0.01)
    assert sam.inside


def test_a_wrong_law_is_seen_to_miss(monkeypatch, capsys):
    monkeypatch.setattr(published, "slower", lambda host, device: host + device)  # no overlap at all
    assert published.main([]) == 1
    assert "missed: rows 1, 2" in capsys.readouterr().err


def test_an_unknown_check_is_an_error():
    with pytest.raises(ValueError, match="row 99: no such check: magic"):
        published.score([{"id": "99", "check": "magic"}])


def test_the_markdown_lists_each_scored_row_and_names_those_that_are_not():
    text = published.markdown(published.score(TABLE), TABLE)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 14
    assert "7.39×, really 4.48×" in text
    assert "| 30 | two-layer net, training, capture and replay, Gaudi | 6.191 | 6.309 | +1.9 % |  |" in lines
    assert "rows 8, 9, 10" in text


def test_the_data_file_is_plain_json_with_one_row_a_line():
    lines = published.DATA.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith('  {"id"') for line in lines) == len(TABLE)
    assert json.loads(published.DATA.read_text(encoding="utf-8"))["about"]


# --------------------------------------------------------------------------------------------------- the closed form


def test_resnet_steps_are_the_slower_of_host_and_device():
    errors = [abs(r.error) for r in published.score(TABLE) if r.row["check"] == "max-law"]
    assert len(errors) == 7
    assert max(errors) <= 0.05
    assert sum(errors) / 7 <= 0.02


def test_no_scored_row_misses_its_mark(capsys):
    """Lines through Gaudi's rows within 2 %, rows with partial inputs inside their bounds: the command judges both."""
    assert published.main([]) == 0
    assert published.main(["--markdown"]) == 0
    assert "really 4.48×" in capsys.readouterr().out
