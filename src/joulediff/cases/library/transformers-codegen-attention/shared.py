"""Two layers of CodeGen."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import CodeGenConfig, CodeGenModel


def make_model():
    torch.manual_seed(0)
    config = CodeGenConfig(
        n_embd=pick(64, 1024),
        n_head=pick(4, 16),
        n_layer=2,
        n_positions=2048,
        n_ctx=2048,
        rotary_dim=pick(8, 32),
        vocab_size=pick(500, 51200),
        activation_function="gelu_pytorch_tanh",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.device(DEVICE):
        return CodeGenModel(config).to(torch.float32 if DEVICE == "cpu" else torch.float16).eval()


def make_step(model):
    ids = torch.randint(0, model.config.vocab_size, (pick(1, 4), pick(64, 1024)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step
