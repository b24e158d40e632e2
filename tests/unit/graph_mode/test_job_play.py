"""A job played together: what the workers of its ranks allow, and what a given step time shows of profiling."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hpuprof.graph_mode import job_play
from hpuprof.graph_mode.graph_prices import GraphPrice, prices_of
from hpuprof.graph_mode.job_play import JobPlay
from hpuprof.model.prediction import ProfilingPrior
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.loader_workers import late_samples
from hpuprof.what_if.uncertainty import SAMPLES, pack

TIMES = np.full(SAMPLES, 100.0)
CONSTANTS = constants_for("cuda", "eager", {})


def rank(every: float | None = None, late: float | None = None, **more) -> SimpleNamespace:
    """`every`: time between two batches; `late`: how likely workers set the pace."""
    batches = b"" if every is None else pack(np.full(SAMPLES, every))
    return SimpleNamespace(**{"loader_every": batches, "loader_late": late, "base": "profiled", **more})


class Meeting(JobPlay, frozen=True, eq=False, dict=True):
    """Ranks of which it is known what they take together."""

    eager: SimpleNamespace | None = None

    @property
    def _met(self) -> SimpleNamespace | None:
        return self.eager


def job(*ranks: SimpleNamespace, eager: SimpleNamespace | None = None) -> JobPlay:
    return Meeting(ranks, CONSTANTS, eager)


@pytest.mark.parametrize(
    ("every", "left", "found"),
    [
        ((None, None), (), 100.0),
        ((90.0, 120.0), (), 120.0),
        ((90.0, 120.0), (1.0, 0.5), 100.0),
        ((130.0, 120.0), (1.0, 0.5), 130.0),
        ((None, 400.0), (0.1, 0.5), 200.0),
    ],
)
def test_no_step_is_shorter_than_the_time_between_two_batches_of_any_rank(every, left, found):
    ranks = [rank(ns) for ns in every]
    assert job(*ranks)._no_sooner(TIMES, left) == pytest.approx(np.full(SAMPLES, found))


def test_the_recording_holds_waits_where_workers_of_a_chosen_rank_set_its_pace():
    """Samples in which the less likely one does are among those of the likelier."""
    both = job(rank(1.0, 0.25), rank(1.0, 0.75), rank())
    few, many = both.waiting([True, False, True]), both.waiting([True, True, False])
    assert few.mean() == pytest.approx(0.25, abs=1 / SAMPLES)
    assert many.mean() == pytest.approx(0.75, abs=1 / SAMPLES)
    assert not (few & ~many).any()
    assert not both.waiting([False, False, True]).any()


def costed(late: float | None, base: str) -> np.ndarray:
    """Twice the nominal cost explains a given step time of 80 where the recorded one is 100 and hardly any of it is."""

    def profiled(overhead: np.ndarray, host: np.ndarray) -> np.ndarray:
        return 100.0 * host - 10.0 * overhead

    prior = ProfilingPrior(median=1.0, high=1.5, source="calibration")
    known = {"base": base, "base_step_ns": 80.0, "base_spread": 0.01, "overhead_prior": prior}
    return job(
        rank(50.0, late, **known), rank(overhead_prior=None), eager=SimpleNamespace(profiled=profiled)
    ).fitted.drawn.overhead


def test_a_given_step_time_shows_the_cost_of_profiling_where_no_batch_sets_it():
    prior, given = costed(None, "profiled"), costed(None, "given")
    assert np.median(prior) == pytest.approx(1.0, rel=0.1)
    assert np.median(given) == pytest.approx(2.0, rel=0.15)
    late = late_samples(0.5)[0]
    mixed = costed(0.5, "given")
    assert mixed[late] == pytest.approx(prior[late])
    assert mixed[~late] == pytest.approx(given[~late])
    assert costed(0.5, "profiled") == pytest.approx(prior)


def test_where_ranks_do_not_meet_graphs_gain_between_the_least_and_the_most_of_them():
    """Steps of 100 and 80, 90 at the median, that graphs make half and 0.8 times as long."""

    def option(ratio: float, uncorrected: float) -> SimpleNamespace:
        return SimpleNamespace(ratio=pack(np.full(SAMPLES, ratio)), uncorrected_ns=uncorrected, skeletons=[])

    known = {"base": "profiled", "recorded_skeletons": [], "profiled_step_ns": 100.0, "groups": []}
    ranks = [rank(base_samples=pack(np.full(SAMPLES, ns)), **known) for ns in (100.0, 80.0)]
    alone = JobPlay(ranks, CONSTANTS)
    step_ns, uncorrected_ns = alone.with_graphs([option(2.0, 70.0), option(1.25, 90.0)])
    assert not alone.joined
    assert [step_ns.min(), np.median(step_ns), step_ns.max()] == pytest.approx([45, 90 / 2.5**0.5, 72], rel=0.01)
    assert alone.with_graphs([option(2.0, 70.0)] * 2)[0] == pytest.approx(np.full(SAMPLES, 45.0))
    assert uncorrected_ns == 90.0
    assert alone.behind == pytest.approx(np.full(SAMPLES, 0.9))


@pytest.mark.parametrize(("joined", "least"), [(True, 30.0), (False, 60.0)])
def test_host_work_outside_of_graphs_bounds_a_job_whose_ranks_do_not_meet(joined, least):
    """A rank that meets others takes waiting for them for host work."""
    option = SimpleNamespace(region="step", drops_sync=False, asynchronous=False, host_outside_low_ns=80.0)
    play = SimpleNamespace(
        joined=joined,
        behind=np.full(SAMPLES, 0.75),
        base_samples=TIMES,
        with_graphs=lambda options: (TIMES / len(options), 70.0),
    )
    job = SimpleNamespace(predictions=[SimpleNamespace(options=[option])], play=play, basis="steps", least_ns=30.0)
    (price,) = prices_of(job)
    assert (price.least_ns, price.uncorrected_ns) == (least, 70.0)


def test_what_a_rank_cannot_capture_is_no_option_of_the_job():
    def option(region: str) -> SimpleNamespace:
        return SimpleNamespace(region=region, drops_sync=False, asynchronous=False, host_outside_low_ns=0.0)

    play = SimpleNamespace(joined=True, behind=TIMES / 100, base_samples=TIMES, with_graphs=lambda _: (TIMES, 70.0))
    ranks = [SimpleNamespace(options=[option(name) for name in names]) for names in (("step", "model"), ("model",))]
    job = SimpleNamespace(predictions=ranks, play=play, basis="steps", least_ns=30.0)
    assert [(price.key.region, len(price.options)) for price in prices_of(job)] == [("model", 2)]


@pytest.mark.parametrize(("cut", "at_most"), [(0.25, False), (0.75, True)])
def test_a_gain_is_at_most_its_bound_where_that_cuts_most_samples(cut, at_most):
    step_ns = np.where(np.arange(SAMPLES) < cut * SAMPLES, 20.0, 80.0)
    price = GraphPrice([SimpleNamespace()], step_ns, TIMES, 70.0, 50.0).no_faster(0.0)
    assert price.interval().at_most == at_most
    assert price.speedup.max() == pytest.approx(2.0)


def test_the_least_explained_rank_and_the_error_together_widen_what_graphs_gain(monkeypatch):
    """Graphs halve the step of a job that is replayed without error; one rank's rows are late for a tenth of it."""
    seen = {}

    def errors(*args: object) -> SimpleNamespace:
        seen["of"] = args[1:]
        return SimpleNamespace(base=0.0, replay=0.0, change=0.0)

    monkeypatch.setattr(job_play.Errors, "of", errors)
    monkeypatch.setattr(Meeting, "together_error", 0.0, raising=False)
    halved = SimpleNamespace(at=lambda _: TIMES / 2, times=np.full(30, 45.0))
    monkeypatch.setattr(Meeting, "_together", lambda *_: halved, raising=False)
    eager = SimpleNamespace(at=lambda _: TIMES, profiled=lambda overhead, _: 100.0 + 0 * overhead)
    prior = ProfilingPrior(median=1.0, high=1.5, source="calibration")
    known = {"base": "profiled", "base_step_ns": 100.0, "base_spread": 0.02, "overhead_prior": prior}
    play = job(rank(unexplained=0.02, **known), rank(unexplained=0.1, **known), eager=eager)
    step_ns, uncorrected = play.with_graphs([SimpleNamespace(skeletons=[])] * 2)
    assert (seen["of"], uncorrected) == ((0.02, 0.0, 0.1), 45.0)
    assert step_ns == pytest.approx(TIMES / 2)
