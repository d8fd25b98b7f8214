"""Ranks the answers to multiple-choice prompts by the probability of the next token of a Llama."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROMPTS, LENGTH = (16, 512) if DEVICE == "cuda" else (6, 96)
VOCABULARY = 32000 if DEVICE == "cuda" else 8000


def random_llama():
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512 if DEVICE == "cuda" else 128,
        intermediate_size=1024 if DEVICE == "cuda" else 256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).to(DEVICE).eval()


def build():
    torch.manual_seed(0)
    model = random_llama()
    source = torch.Generator().manual_seed(5)
    prompts = torch.randint(VOCABULARY, (PROMPTS, LENGTH), generator=source).to(DEVICE)
    answers = torch.randint(VOCABULARY, (4,), generator=source).to(DEVICE)

    @torch.no_grad()
    def step():
        output = model(input_ids=prompts, use_cache=False)
        following = output.logits[:, -1].log_softmax(dim=-1)
        return following[:, answers]

    return step
