"""Counts the nodes of a CUDA graph while it is captured, by the driver's own functions.

PyTorch has no function for it. The counts before and after an operator tell which kernels of a replay are the
operator's. The driver lists nodes in the order in which they were added (H200, driver 580).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of the graph under capture. `works`: those that the profiler shows as kernels, copies and fills."""

    total: int
    works: int
    stream: object


CountNodes = Callable[[], Nodes | None]
# CUgraphNodeType: kernel, memcpy, memset.
_WORKS = (0, 1, 2)
_CAPTURING = 1


class NodeCounter:
    """Counts the nodes of one graph; looks at each node once."""

    def __init__(self) -> None:
        self._driver = _open_driver()
        self._total = self._works = 0

    def __call__(self) -> Nodes | None:
        """Return the nodes of the graph that the current stream captures; None if the driver does not tell."""
        import torch

        driver = self._driver
        if driver is None:
            return None
        stream = torch.cuda.current_stream().cuda_stream
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        found = [ctypes.byref(each) for each in (status, number, graph)]
        if driver.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *found, None, None) or status.value != _CAPTURING:
            return None
        count = ctypes.c_size_t(0)
        if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)):
            return None
        if count.value > self._total and not self._look_at_new(graph, count):
            return None
        return Nodes(self._total, self._works, stream)

    def _look_at_new(self, graph: ctypes.c_void_p, count: ctypes.c_size_t) -> bool:
        nodes = (ctypes.c_void_p * count.value)()
        if self._driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)):
            return False
        kind = ctypes.c_int()
        for node in nodes[self._total : count.value]:
            if self._driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
                return False
            self._works += kind.value in _WORKS
        self._total = count.value
        return True


@functools.cache
def _open_driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
