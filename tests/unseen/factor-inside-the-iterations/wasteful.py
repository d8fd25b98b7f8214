"""Sparse codes of image patches over a dictionary: the lasso by the alternating direction method of multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class LassoConfig:
    pixels: int = 1024 if LARGE else 144
    atoms: int = 2048 if LARGE else 256
    patches: int = 1024 if LARGE else 64
    penalty: float = 0.1
    rho: float = 1.0
    relaxation: float = 1.0
    max_iterations: int = 12


@dataclass
class AdmmState:
    """The sparse codes, and the scaled dual variable."""

    codes: Tensor
    dual: Tensor


def shrink(values: Tensor, threshold: float) -> Tensor:
    return values.sign() * (values.abs() - threshold).clamp(min=0.0)


def random_dictionary(pixels: int, atoms: int) -> Tensor:
    dictionary = torch.randn(pixels, atoms)
    return dictionary / dictionary.norm(dim=0)


class SparseCoder:
    """Codes patches over a dictionary."""

    def __init__(self, dictionary: Tensor, config: LassoConfig):
        self.dictionary = dictionary
        self.config = config

    def dense_update(self, gram: Tensor, correlation: Tensor, state: AdmmState) -> Tensor:
        """Minimize the quadratic part of the objective."""
        rho = self.config.rho
        factor = torch.linalg.cholesky(gram)
        return torch.cholesky_solve(correlation + rho * (state.codes - state.dual), factor)

    def sparse_update(self, dense: Tensor, state: AdmmState) -> AdmmState:
        """Minimize the penalty, and move the dual variable."""
        if self.config.relaxation != 1.0:
            dense = self.config.relaxation * dense + (1.0 - self.config.relaxation) * state.codes
        codes = shrink(dense + state.dual, self.config.penalty / self.config.rho)
        return AdmmState(codes, state.dual + dense - codes)

    def encode(self, patches: Tensor) -> Tensor:
        if patches.shape[0] != self.dictionary.shape[0]:
            raise ValueError(f"patches have {patches.shape[0]} pixels, atoms {self.dictionary.shape[0]}")
        correlation = self.dictionary.T @ patches
        identity = torch.eye(self.dictionary.shape[1], device=self.dictionary.device)
        gram = self.dictionary.T @ self.dictionary + self.config.rho * identity
        state = AdmmState(torch.zeros_like(correlation), torch.zeros_like(correlation))
        for _ in range(self.config.max_iterations):
            dense = self.dense_update(gram, correlation, state)
            state = self.sparse_update(dense, state)
        return state.codes

    def objective(self, patches: Tensor, codes: Tensor) -> Tensor:
        residual = patches - self.dictionary @ codes
        return 0.5 * residual.square().sum() + self.config.penalty * codes.abs().sum()


def build():
    torch.manual_seed(0)
    config = LassoConfig()
    coder = SparseCoder(random_dictionary(config.pixels, config.atoms).to(DEVICE), config)
    patches = torch.randn(config.pixels, config.patches).to(DEVICE)

    @torch.no_grad()
    def step():
        codes = coder.encode(patches)
        return codes, coder.objective(patches, codes)

    return step
