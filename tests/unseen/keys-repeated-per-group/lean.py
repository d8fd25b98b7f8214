"""One decoding step of grouped-query attention over a filled cache."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    BATCH, KV_HEADS, GROUP, CACHED, HEAD = 32, 8, 8, 4096, 128
else:
    BATCH, KV_HEADS, GROUP, CACHED, HEAD = 8, 2, 4, 2048, 64


def make_projection(width_in, width_out):
    weight = (torch.randn(width_in, width_out) * width_in**-0.5).to(DEVICE)
    return lambda x: x @ weight


def attend(query, keys, values):
    """Attention of one new token; the query heads come in groups that share a key head."""
    query = query.view(BATCH, KV_HEADS, GROUP, HEAD)
    scores = query @ keys.transpose(-1, -2) * HEAD**-0.5
    mixed = scores.softmax(dim=-1) @ values
    return mixed.reshape(BATCH, KV_HEADS * GROUP * HEAD)


def build():
    torch.manual_seed(0)
    width = KV_HEADS * GROUP * HEAD
    project_query, project_out = make_projection(width, width), make_projection(width, width)
    hidden = torch.randn(BATCH, width).to(DEVICE)
    keys = torch.randn(BATCH, KV_HEADS, CACHED, HEAD).to(DEVICE)
    values = torch.randn(BATCH, KV_HEADS, CACHED, HEAD).to(DEVICE)

    def step():
        return project_out(attend(project_query(hidden), keys, values))

    return step
