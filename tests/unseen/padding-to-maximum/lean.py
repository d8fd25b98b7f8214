"""Sentence vectors from a small BERT; the collator makes rectangular batches."""

import random
from types import SimpleNamespace

import torch
from transformers import BertConfig, BertModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"


class Collator:
    def __init__(self, padding, max_length, pad_id=0):
        self.padding = padding
        self.max_length = max_length
        self.pad_id = pad_id

    def __call__(self, samples):
        longest = max(len(tokens) for tokens in samples)
        width = self.max_length if self.padding == "max_length" else longest
        ids = [tokens + [self.pad_id] * (width - len(tokens)) for tokens in samples]
        mask = [[1] * len(tokens) + [0] * (width - len(tokens)) for tokens in samples]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def build():
    torch.manual_seed(0)
    random.seed(0)
    args = SimpleNamespace(padding="longest", max_length=512 if LARGE else 128, batch=64 if LARGE else 4)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=768 if LARGE else 128,
        num_hidden_layers=4 if LARGE else 2,
        num_attention_heads=12 if LARGE else 4,
        intermediate_size=3072 if LARGE else 512,
    )
    model = BertModel(config).to(DEVICE).eval()
    lengths = [random.randint(args.max_length // 8, args.max_length // 3) for _ in range(args.batch)]
    samples = [[random.randrange(1, config.vocab_size) for _ in range(length)] for length in lengths]
    batch = {name: tensor.to(DEVICE) for name, tensor in Collator(args.padding, args.max_length)(samples).items()}

    @torch.no_grad()
    def step():
        return model(**batch).last_hidden_state[:, 0]

    return step
