"""TensorFlow: programs can be measured, not recorded. Nothing here imports it unless the program has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulediff.frameworks.framework import Framework

if TYPE_CHECKING:
    from joulediff.frameworks.sync import Sync


def _open_sync() -> Sync | None:
    from joulediff.frameworks.tensorflow.sync import open_tensorflow_sync

    return open_tensorflow_sync()


FRAMEWORK = Framework(name="tensorflow", libraries=("tensorflow", "keras"), open_sync=_open_sync)
