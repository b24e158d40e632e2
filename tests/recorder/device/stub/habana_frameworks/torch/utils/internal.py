"""Which mode the bridge runs in: lazy unless told otherwise, as up to 1.20."""

import os


def is_lazy() -> bool:
    return os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"
