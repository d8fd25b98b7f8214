"""One layer of a Qwen3 mixture of experts."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import Qwen3MoeConfig, Qwen3MoeModel


def make_step(implementation):
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        hidden_size=pick(64, 1024),
        intermediate_size=pick(128, 3072),
        moe_intermediate_size=pick(32, 768),
        num_hidden_layers=1,
        num_attention_heads=pick(2, 16),
        num_key_value_heads=pick(2, 4),
        head_dim=pick(32, 64),
        num_experts=pick(8, 64),
        num_experts_per_tok=pick(2, 8),
        vocab_size=pick(500, 8000),
        use_cache=False,
        experts_implementation=implementation,
    )
    with torch.device(DEVICE):
        model = Qwen3MoeModel(config).to(torch.float32 if DEVICE == "cpu" else torch.bfloat16).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    ids = torch.randint(0, config.vocab_size, (pick(1, 4), pick(64, 512)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step
