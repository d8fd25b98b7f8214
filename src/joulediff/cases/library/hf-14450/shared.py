"""A training step of BERT in float32: forward and backward."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from transformers import BertConfig, BertForSequenceClassification


def make_step():
    torch.manual_seed(0)
    width = pick(64, 1024)
    config = BertConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=2,
        num_attention_heads=width // 32,
        vocab_size=pick(500, 30522),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.device(DEVICE):
        model = BertForSequenceClassification(config)
    ids = torch.randint(0, config.vocab_size, (pick(1, 16), pick(16, 256)), device=DEVICE)
    labels = torch.zeros(ids.shape[0], dtype=torch.long, device=DEVICE)

    def step():
        model.zero_grad(set_to_none=True)
        loss = model(ids, labels=labels).loss
        loss.backward()
        return loss

    return step
