"""GPT-2 XL, two of its layers, in half precision."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import GPT2Config, GPT2Model


def make_step(activation):
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=pick(64, 1600),
        n_head=pick(4, 25),
        n_layer=2,
        vocab_size=pick(500, 50257),
        activation_function=activation,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.device(DEVICE):
        model = GPT2Model(config).to(torch.float32 if DEVICE == "cpu" else torch.float16).eval()
    ids = torch.randint(0, config.vocab_size, (pick(1, 8), pick(64, 1024)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step
