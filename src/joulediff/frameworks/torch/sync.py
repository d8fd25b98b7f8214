"""The end of queued CUDA and MPS work.

Events block instead of spinning: a spinning wait would burn a core and show up as CPU energy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from joulediff.frameworks.sync import Sync


def open_torch_sync() -> Sync | None:
    """Return the synchronisation of the devices that this program has started, or None for CPU work alone."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return _CudaSync()
    if torch.backends.mps.is_available():
        return _MpsSync()
    return None


def wait_for_all() -> None:
    """Wait until every device that this program has started is done; a GPU's event blocks first and does not spin."""
    import torch

    cuda = getattr(torch, "cuda", None)  # missing while the package is being imported
    if cuda is not None and cuda.is_initialized():
        _CudaSync().mark(None)()
        synchronise()
    elif _has_mps():
        torch.mps.synchronize()


@cache
def _has_mps() -> bool:
    import torch

    return bool(torch.backends.mps.is_available())


def synchronise() -> None:
    """Wait for every device that this program has started."""
    import torch

    if torch.cuda.is_initialized():
        for index in _started_gpus():
            torch.cuda.synchronize(index)
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


def _started_gpus() -> list[int]:
    """Return the numbers of the GPUs on which this program has a context."""
    import torch

    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda _: True)  # noqa: SLF001
    return [index for index in range(torch.cuda.device_count()) if has_context(index)]


class _CudaSync:
    """One event on the current stream of each device that has a context."""

    def mark(self, output: object) -> Callable[[], None]:  # noqa: ARG002 - streams know their work
        import torch

        events = []
        for index in _started_gpus():
            with torch.cuda.device(index):
                event = torch.cuda.Event(blocking=True)
                event.record()
            events.append(event)

        def wait() -> None:
            for event in events:
                event.synchronize()

        return wait


class _MpsSync:
    def mark(self, output: object) -> Callable[[], None]:  # noqa: ARG002
        import torch

        event = torch.mps.event.Event()
        event.record()
        return event.synchronize  # type: ignore[no-any-return]
