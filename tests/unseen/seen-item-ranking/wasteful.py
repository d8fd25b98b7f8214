"""Offline evaluation of a matrix factorization: recall and NDCG of the top items."""

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"

N_USERS = 2048 if BIG else 1200
N_ITEMS = 20000 if BIG else 320
N_FACTORS = 128 if BIG else 32
K = 10
MAX_TRAIN = 24
N_TEST = 5


def load_factors():
    p = torch.randn(N_USERS, N_FACTORS)
    q = torch.randn(N_ITEMS, N_FACTORS)
    b = torch.randn(N_ITEMS, 1)
    return p, q, b


def load_split():
    order = torch.topk(torch.rand(N_USERS, N_ITEMS), MAX_TRAIN + N_TEST, dim=1)[1]
    lengths = torch.randint(MAX_TRAIN // 2, MAX_TRAIN + 1, (N_USERS,)).tolist()
    train = {user: order[user, :n].to(DEVICE) for user, n in enumerate(lengths)}
    test = order[:, MAX_TRAIN:].to(DEVICE)
    return train, test


def score_all(p, q, b):
    return F.linear(p, q, b.squeeze(1))


def hide_train(scores, train):
    for user, items in train.items():
        scores[user, items] = float("-inf")
    return scores


def hits_at_k(top, test):
    return torch.isin(
        top + N_ITEMS * torch.arange(N_USERS, device=DEVICE).unsqueeze(1),
        test + N_ITEMS * torch.arange(N_USERS, device=DEVICE).unsqueeze(1),
    ).to(torch.float32)


def ndcg(hits):
    gains = torch.arange(2, K + 2, device=DEVICE, dtype=torch.float32).log2().reciprocal()
    return torch.mv(hits, gains) / gains[:N_TEST].sum()


def build():
    torch.manual_seed(0)
    p, q, b = load_factors()
    train, test = load_split()
    p, q, b = (t.to(DEVICE) for t in (p, q, b))

    def step():
        with torch.no_grad():
            scores = hide_train(score_all(p, q, b), train)
            values, top = torch.topk(scores, K)
            hits = hits_at_k(top, test)
            return values, (hits.sum(dim=1) / N_TEST).mean(), ndcg(hits).mean()

    return step
