"""Two layers of a Llama."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import LlamaConfig, LlamaModel


def make_model():
    torch.manual_seed(0)
    width = pick(64, 2048)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=pick(128, 5632),
        num_hidden_layers=2,
        num_attention_heads=pick(4, 32),
        num_key_value_heads=pick(4, 32),
        vocab_size=pick(500, 32000),
        use_cache=False,
    )
    with torch.device(DEVICE):
        model = LlamaModel(config).to(torch.float32 if DEVICE == "cpu" else torch.bfloat16).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)  # as in a trained model: not all ones
    return model


def make_step(model):
    ids = torch.randint(0, model.config.vocab_size, (pick(1, 4), pick(64, 1024)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step
