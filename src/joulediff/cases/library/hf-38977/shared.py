"""A language model that is asked for the next token of each prompt."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import GPT2Config, GPT2LMHeadModel


def make_step(next_logits):
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=pick(64, 1600),
        n_head=pick(4, 25),
        n_layer=1,
        vocab_size=pick(2000, 50257),
        activation_function="gelu_pytorch_tanh",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.device(DEVICE):
        model = GPT2LMHeadModel(config).to(torch.float32 if DEVICE == "cpu" else torch.float16).eval()
    ids = torch.randint(0, config.vocab_size, (pick(1, 8), pick(64, 1024)), device=DEVICE)

    def step():
        with torch.no_grad():
            return next_logits(model, ids)

    return step
