"""Fine-tune a small BERT of random weights on made-up sentences."""

import time
from dataclasses import dataclass, field

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


@dataclass
class Settings:
    batch: int = 16
    steps: int = 24
    rate: float = 5e-5
    config: BertConfig = field(
        default_factory=lambda: BertConfig(
            hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, vocab_size=5000
        )
    )


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = BertForSequenceClassification(settings.config).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.rate)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, 5, settings.steps)

    def step(self, ids, labels):
        out = self.model(input_ids=ids.to(self.device), labels=labels.to(self.device))
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return out.loss.item()

    def run(self):
        count = self.settings.batch * self.settings.steps
        data = TensorDataset(torch.randint(0, 5000, (count, 64)), torch.randint(0, 2, (count,)))
        started = time.perf_counter()
        losses = [self.step(ids, labels) for ids, labels in DataLoader(data, batch_size=self.settings.batch)]
        print(f"{losses[0]:.3f} -> {losses[-1]:.3f} in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    Trainer(Settings()).run()
