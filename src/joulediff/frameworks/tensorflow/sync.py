"""The end of queued TensorFlow work: only GPU work is queued, and only a full wait is offered."""

from __future__ import annotations

from collections.abc import Callable

from joulediff.frameworks.sync import Sync


def open_tensorflow_sync() -> Sync | None:
    """Return the synchronisation if TensorFlow sees a GPU, else None."""
    import tensorflow as tf

    return _DeviceSync() if tf.config.list_logical_devices("GPU") else None


class _DeviceSync:
    def mark(self, output: object) -> Callable[[], None]:  # noqa: ARG002 - waits for all devices
        import tensorflow as tf

        return tf.test.experimental.sync_devices  # type: ignore[no-any-return]
