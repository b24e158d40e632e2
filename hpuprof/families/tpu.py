"""Google's TPU through torch_tpu, which converts XSpace. No rows of it were seen: only how it is recognized."""

import re

from hpuprof.families.family import Family, Signs

FAMILY = Family(
    name="tpu",
    title="TPU",
    correlated=False,
    unread={".xplane.pb": "an XSpace of XLA's profiler; record with `torch.profiler` instead"},
    signs=Signs(processes=re.compile(r"^(?:/device:)?TPU\b")),
)
