"""Two graph convolutions over a sparse, normalised adjacency matrix."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NODES, EDGES, WIDTH = (200_000, 4_000_000, 128) if DEVICE == "cuda" else (8_000, 80_000, 32)


def normalised_adjacency(nodes, edges):
    ends = torch.randint(nodes, (2, edges))
    loops = torch.arange(nodes).expand(2, nodes)
    places = torch.cat((ends, loops), dim=1)
    degree = torch.bincount(places[0], minlength=nodes).clamp(min=1).float()
    values = (degree[places[0]] * degree[places[1]]).rsqrt()
    return torch.sparse_coo_tensor(places, values, (nodes, nodes)).coalesce()


def convolve(adjacency, features, weight):
    return torch.relu(adjacency @ (features @ weight))


def build():
    torch.manual_seed(0)
    adjacency = normalised_adjacency(NODES, EDGES).to(DEVICE)
    features = torch.randn(NODES, WIDTH).to(DEVICE)
    weights = [(torch.randn(WIDTH, WIDTH) * WIDTH**-0.5).to(DEVICE) for _ in range(2)]

    def step():
        hidden = features
        for weight in weights:
            hidden = convolve(adjacency, hidden, weight)
        return hidden

    return step
