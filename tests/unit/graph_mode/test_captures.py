"""Regions launched as graphs: each way to do it is tried by itself."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from hpuprof.graph_mode.predict import _Captures
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.uncertainty import unpack


def test_a_region_whose_work_waits_for_itself_is_still_tried_without_its_waits():
    captured = SimpleNamespace(asynchronous=False, launches=4.0, graphs=1.0, split=0.0, inputs=0.0)
    costs = {"uncorrected_ns": 9.0, "host_outside_ns": 1.0, "host_outside_low_ns": 1.0, "skeletons": []}
    done = SimpleNamespace(captured=captured, times=np.full((2, 1), 5.0), **costs)

    def ways(region, drawn, *, drop_waits, joint):
        if not drop_waits:
            raise CrosswiseError
        yield done

    model = SimpleNamespace(waits_in=lambda _: True, captured=ways, launching=lambda region, **how: "edit")
    pricing = SimpleNamespace(model=model, steps={}, share=lambda changes: np.full(2, 0.5))
    found = _Captures.of(pricing, [SimpleNamespace(name="step")], None, lambda ratio: ratio, joint=False)
    assert [(option.region, option.drops_sync) for option in found.options] == [("step", True)]
    assert unpack(found.options[0].ratio).tolist() == [2.0, 2.0]
    assert (list(found.edits.values()), list(found.refused)) == (["edit"], ["step"])
    assert list(pricing.steps) == [("edit",)]
