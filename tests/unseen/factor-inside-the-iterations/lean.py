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


def shrink(values: Tensor, threshold: float) -> Tensor:
    return values.sign() * (values.abs() - threshold).clamp(min=0.0)


def random_dictionary(pixels: int, atoms: int) -> Tensor:
    dictionary = torch.randn(pixels, atoms)
    return dictionary / dictionary.norm(dim=0)


def sparse_codes(dictionary: Tensor, patches: Tensor, config: LassoConfig) -> Tensor:
    """Return the codes of the patches, (atoms, patches), by a fixed number of iterations."""
    if patches.shape[0] != dictionary.shape[0]:
        raise ValueError(f"patches have {patches.shape[0]} pixels, atoms {dictionary.shape[0]}")
    identity = torch.eye(dictionary.shape[1], device=dictionary.device)
    correlation = dictionary.T @ patches
    factor = torch.linalg.cholesky(dictionary.T @ dictionary + config.rho * identity)
    codes = torch.zeros_like(correlation)
    dual = torch.zeros_like(correlation)
    for _ in range(config.max_iterations):
        dense = torch.cholesky_solve(correlation + config.rho * (codes - dual), factor)
        if config.relaxation != 1.0:
            dense = config.relaxation * dense + (1.0 - config.relaxation) * codes
        codes = shrink(dense + dual, config.penalty / config.rho)
        dual = dual + dense - codes
    return codes


def objective(dictionary: Tensor, patches: Tensor, codes: Tensor, penalty: float) -> Tensor:
    residual = patches - dictionary @ codes
    return 0.5 * residual.square().sum() + penalty * codes.abs().sum()


def build():
    torch.manual_seed(0)
    config = LassoConfig()
    dictionary = random_dictionary(config.pixels, config.atoms).to(DEVICE)
    patches = torch.randn(config.pixels, config.patches).to(DEVICE)

    @torch.no_grad()
    def step():
        codes = sparse_codes(dictionary, patches, config)
        return codes, objective(dictionary, patches, codes, config.penalty)

    return step
