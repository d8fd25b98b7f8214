"""Greedy completion of short prompts with a small Llama model and a preallocated key-value cache."""

import logging
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

logger = logging.getLogger(__name__)
LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class CompletionOptions:
    prompt_length: int = 128 if LARGE else 16
    new_tokens: int = 16 if LARGE else 4
    batch_size: int = 32 if LARGE else 4
    log_prefix: str = "greedy"


def language_model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8192 if LARGE else 512,
            hidden_size=1024 if LARGE else 128,
            intermediate_size=2816 if LARGE else 352,
            num_hidden_layers=8 if LARGE else 2,
            num_attention_heads=16 if LARGE else 4,
            max_position_embeddings=8192 if LARGE else 4096,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


class CompletionEngine:
    def __init__(self, model, options):
        self.model = model.to(DEVICE).eval()
        self.options = options
        self.capacity = model.config.max_position_embeddings
        self.cache = StaticCache(config=model.config, max_cache_len=self.capacity)
        logger.debug("%s ready, room for %d tokens", options.log_prefix, self.capacity)

    def forward(self, tokens, begin):
        positions = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        return self.model(
            input_ids=tokens,
            position_ids=positions.unsqueeze(0),
            past_key_values=self.cache,
            logits_to_keep=1,
        ).logits[:, -1]

    @torch.no_grad()
    def complete(self, prompts):
        self.cache.reset()
        length = prompts.shape[1]
        scores = self.forward(prompts, 0)
        picked = [scores.argmax(dim=-1, keepdim=True)]
        for offset in range(self.options.new_tokens - 1):
            scores = self.forward(picked[-1], length + offset)
            picked.append(scores.argmax(dim=-1, keepdim=True))
        return torch.cat(picked, dim=1), scores


def build():
    torch.manual_seed(0)
    options = CompletionOptions()
    engine = CompletionEngine(language_model(), options)
    prompts = torch.randint(512, (options.batch_size, options.prompt_length)).to(DEVICE)

    def step():
        return engine.complete(prompts)

    return step
