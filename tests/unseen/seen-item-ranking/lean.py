import math

import torch
import torch.nn as nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    USERS, ITEMS, DIM = 2048, 20000, 128
else:
    USERS, ITEMS, DIM = 1200, 320, 32
SEEN, HELD_OUT, TOP = 24, 5, 10


def make_interactions():
    picks = torch.rand(USERS, ITEMS).topk(SEEN + HELD_OUT, dim=1).indices
    counts = torch.randint(SEEN // 2, SEEN + 1, (USERS,))
    return picks[:, :SEEN], picks[:, SEEN:], counts


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.bias = nn.Embedding(ITEMS, 1)

    def forward(self, users):
        return self.users(users) @ self.items.weight.T + self.bias.weight.T


class Evaluator:
    """Ranks the items a user has not seen and compares them with the held-out ones."""

    def __init__(self, model, seen, counts, held_out):
        self.model = model
        self.shift = ITEMS * torch.arange(USERS, device=DEVICE)[:, None]
        self.held_out = held_out.to(DEVICE) + self.shift
        known = torch.arange(SEEN) < counts[:, None]
        rows, slots = known.nonzero(as_tuple=True)
        self.rows = rows.to(DEVICE)
        self.columns = seen[rows, slots].to(DEVICE)
        self.users = torch.arange(USERS, device=DEVICE)
        self.discount = 1 / torch.log2(torch.arange(TOP, device=DEVICE) + 2.0)
        self.ideal = sum(1 / math.log2(i + 2) for i in range(HELD_OUT))

    @torch.inference_mode()
    def __call__(self):
        scores = self.model(self.users)
        scores[self.rows, self.columns] = -math.inf
        best, ranking = scores.topk(TOP, dim=1)
        hits = torch.isin(ranking + self.shift, self.held_out).float()
        recall = hits.sum(1) / HELD_OUT
        ndcg = (hits * self.discount).sum(1) / self.ideal
        return best, recall.mean(), ndcg.mean()


def build():
    torch.manual_seed(0)
    model = Recommender()
    seen, held_out, counts = make_interactions()
    model.to(DEVICE).eval()
    return Evaluator(model, seen, counts, held_out)
