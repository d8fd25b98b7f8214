"""GPT-2 small with random weights, a forward pass: fp16 8x512 on a GPU, fp32 1x64 on a CPU."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    model = GPT2LMHeadModel(GPT2Config()).eval()
    model = model.half().cuda() if on_gpu else model
    ids = torch.randint(0, 50257, (8, 512) if on_gpu else (1, 64), device=model.device)

    def step():
        with torch.no_grad():
            return model(ids).logits

    return step
