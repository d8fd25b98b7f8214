"""One training step of a small language model; the trainer switches on what its arguments ask for."""

from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass
class TrainingArguments:
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    batch_size: int = 16 if LARGE else 2
    length: int = 512 if LARGE else 64


class Trainer:
    def __init__(self, model, arguments):
        self.model = model.to(DEVICE).train()
        self.arguments = arguments
        if arguments.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=arguments.learning_rate)

    def training_step(self, tokens):
        self.optimizer.zero_grad()
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.arguments.max_grad_norm)
        self.optimizer.step()
        return loss.detach()


def language_model():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=8192 if LARGE else 512,
            n_positions=512,
            n_embd=768 if LARGE else 128,
            n_layer=8 if LARGE else 4,
            n_head=12 if LARGE else 4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def build():
    torch.manual_seed(0)
    arguments = TrainingArguments()
    trainer = Trainer(language_model(), arguments)
    tokens = torch.randint(512, (arguments.batch_size, arguments.length)).to(DEVICE)

    def step():
        return trainer.training_step(tokens)

    return step
