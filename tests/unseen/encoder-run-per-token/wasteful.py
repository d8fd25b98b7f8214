"""Greedy decoding by hand with a small T5 and a cache."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"
NEW_TOKENS = 4


def make_model():
    config = T5Config(
        vocab_size=512,
        d_model=768 if LARGE else 128,
        d_kv=64 if LARGE else 32,
        d_ff=3072 if LARGE else 256,
        num_layers=6 if LARGE else 2,
        num_heads=12 if LARGE else 4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config).to(DEVICE).eval()


def decode(model, source):
    token = torch.zeros(source.shape[0], 1, dtype=torch.long, device=DEVICE)
    cache, picked = None, []
    for _ in range(NEW_TOKENS):
        out = model(input_ids=source, decoder_input_ids=token, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        token = out.logits[:, -1:].argmax(dim=-1)
        picked.append(token)
    return torch.cat(picked, dim=1), out.logits


def build():
    torch.manual_seed(0)
    model = make_model()
    source = torch.randint(1, 512, (32, 512) if LARGE else (4, 64)).to(DEVICE)

    def step():
        with torch.inference_mode():
            return decode(model, source)

    return step
