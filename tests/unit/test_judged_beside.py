"""Large traces are judged in a thread of their own while they are measured."""

import threading

import msgspec
import pytest

from hpuprof import executors, pipeline
from hpuprof.ingest.discover import discover
from hpuprof.ingest.read import read_trace
from hpuprof.options import ReduceOptions


def test_what_is_judged_beside_is_the_same(samples, monkeypatch):
    (file,) = discover([samples / "hpu_g2_eager"])[0]
    partial = pipeline.reduce_trace(read_trace(file.path), file)
    threads = []
    judge = pipeline._judge
    monkeypatch.setattr(pipeline, "_judge", lambda *args: threads.append(threading.current_thread()) or judge(*args))
    monkeypatch.setattr(pipeline, "_MANY_BYTES", 0)
    monkeypatch.setattr(executors, "spare_core", lambda: True)
    threaded = pipeline.reduce_trace(read_trace(file.path), file)
    assert threads != [threading.main_thread()]
    assert msgspec.msgpack.encode(threaded) == msgspec.msgpack.encode(partial)


def test_an_error_beside_comes_through(monkeypatch):
    monkeypatch.setattr(executors, "spare_core", lambda: True)
    result = executors.in_background(lambda: {}["nothing"], worth=True)
    with pytest.raises(KeyError, match="nothing"):
        result()


def test_a_file_alone_is_reduced_without_what_only_jobs_need(samples):
    file = discover([samples / "hpu_g3_lazy_8_ranks"])[0][0]
    trace = read_trace(file.path)
    job, alone = (pipeline.reduce_trace(trace, file, ReduceOptions(joint=joint)).prediction for joint in (True, False))
    assert all(found.skeletons for found in (job, *job.options))
    assert not any(found.skeletons for found in (alone, *alone.options))
