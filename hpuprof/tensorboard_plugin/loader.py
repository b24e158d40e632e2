"""Where TensorBoard finds the plugin (entry point group `tensorboard_plugins`)."""

from __future__ import annotations

from typing import Any

from tensorboard.plugins import base_plugin


class HpuprofLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Makes the plugin, importing its dependencies only then."""

    def load(self, context: Any) -> Any:
        """Return the plugin for TensorBoard's context."""
        from hpuprof.tensorboard_plugin.plugin import HpuprofPlugin

        return HpuprofPlugin(context)
