"""Rank passages for a question by the odds of 'yes' against 'no' of a causal language model."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"


@dataclass
class Options:
    vocabulary: int = 128000 if BIG else 16000
    hidden: int = 1024 if BIG else 128
    layers: int = 8 if BIG else 3
    heads: int = 16 if BIG else 4
    passages: int = 32 if BIG else 6
    longest: int = 512 if BIG else 64
    pad_id: int = 0
    yes_id: int = 17
    no_id: int = 23
    temperature: float = 1.0
    keep: int = 3


def make_prompts(options):
    """Random stand-ins for tokenised prompts, none longer than the limit."""
    gen = torch.Generator().manual_seed(31)
    prompts = []
    for index in range(options.passages):
        length = options.longest - (index * 5) % 24
        prompts.append(torch.randint(100, options.vocabulary, (length,), generator=gen))
    return prompts


def left_pad(prompts, pad_id):
    """Batch with the prompts flush right, so that the last position is the answer."""
    width = max(len(p) for p in prompts)
    ids = torch.full((len(prompts), width), pad_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        start = width - len(prompt)
        ids[row, start:] = prompt
        mask[row, start:] = 1
    return ids, mask


def build_model(options):
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.heads,
        max_position_embeddings=2 * options.longest,
        pad_token_id=options.pad_id,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    return model.to(DEVICE).eval()


class YesNoRanker(nn.Module):
    """Relevance of a passage: the log odds of the two answer tokens."""

    def __init__(self, model, options):
        super().__init__()
        self.model = model
        self.options = options

    def positions(self, mask):
        return (mask.cumsum(-1) - 1).clamp_min(0)

    @torch.no_grad()
    def answer_logits(self, ids, mask):
        """Logits of the token that follows each prompt."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=self.positions(mask),
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def forward(self, ids, mask):
        logits = self.answer_logits(ids, mask)
        answers = logits[:, [self.options.no_id, self.options.yes_id]]
        log_odds = torch.log_softmax(answers / self.options.temperature, -1)
        return log_odds[:, 1]


def best(scores, keep):
    return scores.topk(keep)


def build():
    torch.manual_seed(0)
    options = Options()
    ranker = YesNoRanker(build_model(options), options)
    ids, mask = left_pad(make_prompts(options), options.pad_id)
    ids, mask = ids.to(DEVICE), mask.to(DEVICE)

    def step():
        scores = ranker(ids, mask)
        ranked = best(scores, options.keep)
        return scores, ranked.values, ranked.indices

    return step
