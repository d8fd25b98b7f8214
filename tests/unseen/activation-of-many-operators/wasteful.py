"""Hidden states of a small GPT-2 for the documents that the search index takes in."""

import torch
from transformers import GPT2Config, GPT2Model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def encoder_config():
    large = DEVICE == "cuda"
    return GPT2Config(
        vocab_size=2000,
        n_positions=512,
        n_embd=128 if large else 64,
        n_layer=12 if large else 4,
        n_head=4,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )


class DocumentEncoder:
    def __init__(self, config):
        self.model = GPT2Model(config).to(DEVICE).eval()

    @torch.no_grad()
    def encode(self, documents):
        return self.model(input_ids=documents).last_hidden_state


def build():
    torch.manual_seed(0)
    encoder = DocumentEncoder(encoder_config())
    batch, length = (64, 512) if DEVICE == "cuda" else (16, 64)
    documents = torch.randint(2000, (batch, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)

    def step():
        return encoder.encode(documents)

    return step
