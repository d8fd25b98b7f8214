"""One layer, trained by two ranks of which one has fewer batches: rank 0 is this program, rank 1 a child of it.

Every step begins with the same weights. A byte through a pipe tells rank 1 to run one too; the end of the pipe ends it.
"""

import atexit
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from joulediff.cases.sizes import pick
from torch.distributed.algorithms.join import Joinable, JoinHook
from torch.nn import functional as F

RANKS = 2
# Batches of each rank.
COUNTS = (pick(16, 64), 1)
ROWS, WIDTH, OUTPUTS = 4, pick(1024, 4096), pick(128, 1024)
RATE = 1e-3
# Longer than any step; where rank 1 fails, rank 0 does not wait for ever.
_PATIENCE = timedelta(seconds=60)
_peers = []


class Layer(Joinable):
    """A layer whose gradient is the mean over all ranks, also of those that have no batch left."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.randn(OUTPUTS, WIDTH) * WIDTH**-0.5
        self.weight = self.first.clone().requires_grad_()

    def reset(self):
        with torch.no_grad():
            self.weight.copy_(self.first)

    def backward(self, x, y):
        self.weight.grad = None
        loss = F.mse_loss(F.linear(x, self.weight), y)
        loss.backward()
        return loss.detach()

    def update(self):
        with torch.no_grad():
            self.weight.grad.div_(RANKS)
            self.weight.add_(self.weight.grad, alpha=-RATE)

    def hand_over(self):
        """Give rank 1 the weights that rank 0, with the most batches, has in the end."""
        dist.broadcast(self.weight.detach(), src=0)

    def join_hook(self, **kwargs):
        return Shadow(self)

    @property
    def join_device(self):
        return self.weight.device

    @property
    def join_process_group(self):
        return dist.group.WORLD


class Shadow(JoinHook):
    """What a rank without batches does while others have some: their collectives, with zeros."""

    def __init__(self, layer):
        self.layer = layer

    def main_hook(self):
        dist.all_reduce(torch.zeros_like(self.layer.weight))

    def post_hook(self, is_last_joiner):
        self.layer.hand_over()


def make_batches(rank):
    draw = torch.Generator().manual_seed(rank)
    return [
        (torch.randn(ROWS, WIDTH, generator=draw), torch.randn(ROWS, OUTPUTS, generator=draw))
        for _ in range(COUNTS[rank])
    ]


def make_step(program, make_train):
    tell = start_peer(program)
    layer = Layer()
    train = make_train(layer, make_batches(0))

    def step():
        tell()
        layer.reset()
        loss = train()
        return loss, layer.weight.grad

    return step


def start_peer(program):
    """Start rank 1 and return what tells it to run a step; it ends when this process does, or builds again."""
    _end_peers()
    store = dist.TCPStore("127.0.0.1", 0, RANKS, is_master=True, wait_for_workers=False, timeout=_PATIENCE)
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), str(store.port), program, *sys.argv[1:]]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    _peers.append(peer)
    connect(store, 0)
    return lambda: peer.stdin.write(b".")


def connect(store, rank):
    torch.set_num_threads(1)  # as torchrun does: ranks share the cores
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=_PATIENCE)


@atexit.register
def _end_peers():
    if dist.is_initialized():
        dist.destroy_process_group()
    while _peers:
        peer = _peers.pop()
        peer.stdin.close()
        try:
            peer.wait(timeout=1)
        except subprocess.TimeoutExpired:
            peer.kill()
            peer.wait()
