"""Generate text with a small Llama of random weights."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8, vocab_size=8000
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(config).to(device).eval()
    prompts = torch.randint(0, config.vocab_size, (4, 64), device=device)
    for prompt in prompts.split(2):
        tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=0)
        print(tokens.shape, tokens[0, -5:].tolist())


main()
