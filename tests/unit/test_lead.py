"""The recording whose tables are shown is the one that the headline speaks of, carried as data."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from sample_reports import report_of

import hpuprof
from hpuprof.analysis_run import Run
from hpuprof.ingest.discover import discover, identify
from hpuprof.render.sections import sections
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

OTHER = "other_0.1700000000000000000.pt.trace.json.gz"
"""A name without stage and action, of the same rank."""


@pytest.fixture(scope="module")
def both(samples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    for sample, name in (("hpu_g1_lazy", ""), ("hpu_g2_eager", OTHER)):
        (path,) = (samples / sample).glob("*.json*")
        shutil.copy(path, folder / (name or path.name))
    files, _ = discover([folder])  # of two runs, joined here to have kinds of recordings that differ
    return hpuprof.analyze(Run(tuple(files), tuple(identify(files)), ()))


def tables(report):
    details = (
        "Operators",
        "Kernels",
        "Longest device idle gaps",
        "Engines, per step",
        "By habana_perf_tool's definitions",
    )
    return [s.rows for s in sections(report, top=None) if s.title.startswith(details)]


def test_tables_are_those_of_the_recording_that_the_headline_speaks_of(both, samples):
    lead = both.headline.lead
    assert (lead.stage, lead.action, lead.window) == ("fit", "training_step", "0")
    alone = report_of("hpu_g1_lazy")
    assert len(tables(alone)) == 5
    assert tables(both) == tables(alone)


def test_words_of_the_headline_decide_nothing(both):
    """Whatever the sentences say, the tables stay."""
    silent = msgspec.structs.replace(both.headline, population="of other things", sentence="?")
    assert tables(Report(msgspec.structs.replace(both.data, headline=silent))) == tables(both)


def test_a_report_of_an_earlier_version_shows_training_first(both):
    old = msgspec.structs.replace(both.data, headline=msgspec.structs.replace(both.headline, lead=None))
    assert lead_recording(old).action == "training_step"
