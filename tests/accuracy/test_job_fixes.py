"""What fixes save of a job whose ranks wait for each other, against the job simulated with them."""

from __future__ import annotations

import pytest

from benchmarks.plan.job_fixes import Job, score_job


@pytest.mark.parametrize(
    ("seed", "of_rank_0"),
    [
        (102, {"read_backs": 0.31, "fused_optimizer": 0.008}),  # what its first rank alone would be said to save
        (104, {"fused_optimizer": 0.016}),
    ],
)
def test_a_fix_is_priced_on_all_ranks_together(seed, of_rank_0):
    rows = {row.remedy: row for row in score_job(Job.of(seed), told=True)}
    for name, alone in of_rank_0.items():
        row = rows[name]
        true, said = row.gain / row.now_ns, (row.before_ns - row.said_ns) / row.now_ns
        assert abs(true - alone) > 0.1
        assert said == pytest.approx(true, abs=0.06)
