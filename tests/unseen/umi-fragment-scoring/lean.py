# Duplicate-aware fragment scores from a coordinate-sorted alignment.
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N = 16_000_000 if DEVICE == "cuda" else 500_000
SITES = N // 400
BARCODES = 64


def init_weights():
    a = torch.nn.Linear(4, 8)
    b = torch.nn.Linear(8, 1)
    return [t.detach().to(DEVICE) for t in (a.weight, a.bias, b.weight, b.bias)]


def simulate():
    site = torch.randint(SITES, (N,))
    code = torch.randint(BARCODES, (N,))
    qual = 2.0 + 38.0 * torch.rand(N)
    # the aligner writes its reads by site, and by barcode within a site
    rank = torch.sort(site * BARCODES + code, stable=True).indices
    return site[rank].to(DEVICE), code[rank].to(DEVICE), qual.to(DEVICE)


def families(site, code):
    key = site * BARCODES + code
    return torch.unique_consecutive(key, return_inverse=True, return_counts=True)


def evidence(qual, member_of, size):
    pooled = qual.new_zeros(size.shape[0])
    return pooled.scatter_add_(0, member_of, qual)


def mlp(x, weights):
    w1, b1, w2, b2 = weights
    hidden = F.relu(F.linear(x, w1, b1))
    return F.linear(hidden, w2, b2)


def score_fragments(site, code, qual, weights):
    ids, member_of, size = families(site, code)
    pooled = evidence(qual, member_of, size)
    x = torch.stack(
        (
            torch.div(pooled, size) / 40.0,
            size / 16.0,
            pooled / 640.0,
            torch.remainder(ids, BARCODES) / 64.0,
        ),
        dim=-1,
    )
    return ids, size, mlp(x, weights).sigmoid()[:, 0]


def build():
    torch.manual_seed(0)
    weights = init_weights()
    site, code, qual = simulate()

    @torch.inference_mode()
    def step():
        return score_fragments(site, code, qual, weights)

    return step
