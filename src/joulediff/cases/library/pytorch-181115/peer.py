"""Rank 1: trains its few batches for every byte that rank 0 sends, and ends with it."""

import signal
import sys
from importlib.util import module_from_spec, spec_from_file_location

import torch.distributed as dist
from shared import RANKS, Layer, connect, make_batches


def main(port, program):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, which takes this one along
    connect(dist.TCPStore("127.0.0.1", int(port), RANKS), 1)
    spec = spec_from_file_location("program", program)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    layer = Layer()
    told = sys.stdin.buffer.raw
    try:
        train = module.make_train(layer, make_batches(1))
        while told.read(1):
            layer.reset()
            train()
    except RuntimeError:
        if told.read(1):  # rank 0 is still there: it was no broken connection
            raise


if __name__ == "__main__":
    main(*sys.argv[1:3])
