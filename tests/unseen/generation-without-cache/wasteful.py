"""Greedy continuation of a prompt with a small decoder and the decoding preset of the service."""

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
BATCH, PROMPT, NEW = (16, 1024, 24) if LARGE else (1, 128, 6)

PRESETS = {
    "greedy": {"do_sample": False, "num_beams": 1},
    "service": {"do_sample": False, "num_beams": 1, "use_cache": False},
}


def decoding(name):
    return GenerationConfig(max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0, **PRESETS[name])


def decoder():
    config = GPT2Config(
        vocab_size=4096 if LARGE else 512,
        n_positions=PROMPT + NEW,
        n_embd=1024 if LARGE else 128,
        n_layer=12 if LARGE else 3,
        n_head=16 if LARGE else 4,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config).to(DEVICE).eval()


def build():
    torch.manual_seed(0)
    model = decoder()
    preset = decoding("service")
    prompt = torch.randint(1, 512, (BATCH, PROMPT)).to(DEVICE)
    mask = torch.ones_like(prompt)

    @torch.no_grad()
    def step():
        return model.generate(prompt, attention_mask=mask, generation_config=preset)

    return step
