"""Two layers of BLOOM."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import BloomConfig, BloomModel


def make_model():
    torch.manual_seed(0)
    config = BloomConfig(
        hidden_size=pick(64, 2048), n_layer=2, n_head=pick(4, 16), vocab_size=pick(500, 32000), use_cache=False
    )
    with torch.device(DEVICE):
        return BloomModel(config).to(torch.float32 if DEVICE == "cpu" else torch.float16).eval()


def make_step(model):
    ids = torch.randint(0, model.config.vocab_size, (pick(1, 4), pick(64, 1024)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step
