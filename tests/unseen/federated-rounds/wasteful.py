"""Federated training of a pump-failure detector, simulated: clients train, the server averages their weights."""

import io
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class FederationOptions:
    clients: int = 4
    sensors: int = 48
    hidden: int = 1024 if DEVICE == "cuda" else 160
    examples: int = 2048 if DEVICE == "cuda" else 128
    local_steps: int = 3
    lr: float = 0.02
    rounds: int = 1


class Detector(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(options.sensors, options.hidden),
            nn.Tanh(),
            nn.Linear(options.hidden, options.hidden),
            nn.Tanh(),
            nn.Linear(options.hidden, 1),
        )

    def forward(self, readings):
        return self.layers(readings).squeeze(-1)


def pack_weights(model):
    """The message in which weights travel between a client and the server."""
    arrays = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def unpack_weights(message):
    with np.load(io.BytesIO(message), allow_pickle=False) as archive:
        return {name: torch.from_numpy(archive[name]).to(DEVICE) for name in archive.files}


class Client:
    """One site with its own readings, which never leave it."""

    def __init__(self, options, seed):
        generator = torch.Generator().manual_seed(seed)
        self.options = options
        self.readings = torch.randn(options.examples, options.sensors, generator=generator).to(DEVICE)
        failing = self.readings[:, :4].sum(dim=1) > 0.5
        self.failing = failing.float()
        self.model = Detector(options).to(DEVICE)
        self.loss = nn.BCEWithLogitsLoss()

    def train(self, message):
        self.model.load_state_dict(unpack_weights(message))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.options.lr)
        for _ in range(self.options.local_steps):
            optimizer.zero_grad()
            self.loss(self.model(self.readings), self.failing).backward()
            optimizer.step()
        return pack_weights(self.model)


class Server:
    def __init__(self, options):
        self.options = options
        self.model = Detector(options).to(DEVICE)
        self.initial = {name: value.clone() for name, value in self.model.state_dict().items()}

    def restart(self):
        self.model.load_state_dict(self.initial)

    def run_round(self, clients):
        message = pack_weights(self.model)
        answers = [client.train(message) for client in clients]
        states = [unpack_weights(answer) for answer in answers]
        self.model.load_state_dict(self.average(states))

    @staticmethod
    def average(states):
        return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}


def build():
    torch.manual_seed(0)
    options = FederationOptions()
    server = Server(options)
    clients = [Client(options, seed=100 + number) for number in range(options.clients)]
    probe = torch.randn(64, options.sensors).to(DEVICE)

    def step():
        server.restart()
        for _ in range(options.rounds):
            server.run_round(clients)
        with torch.no_grad():
            return server.model(probe), server.model.layers[2].weight.clone()

    return step
