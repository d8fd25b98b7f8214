"""Eigenvalues and singular values under capture: the same operators run as without it, vectors only on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from interpreter import SEED, seed_all, to_run
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.capture.dispatch_mode import as_asked
from joulediff.model.run import Run

Step = Callable[[], Any]

M = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
S = M + M.t()
P = S.clone().requires_grad_()


def watched(step: Step) -> tuple[Run, Any]:
    """Return the record of a step, and what the step itself got to see of its results."""
    seen: list[Any] = []

    def kept() -> Any:
        seen.append(step())
        return seen[-1]

    return to_run(capture_step(kept, begin=lambda: seed_all(SEED))), seen[-1]


def calls(run: Run) -> list[tuple[str, str]]:
    """Return the operators that compute values or vectors, with their arguments."""
    names = ("eig", "svd")
    return [(op.name.removeprefix("aten::"), op.arguments) for op in run.ops if any(name in op.name for name in names)]


def of_one(*more: str) -> str:
    return '{"args":[' + ",".join(('{"tensor":0}', *more)) + '],"kwargs":{}}'


def eigvals() -> torch.Tensor:
    return torch.linalg.eigvals(M)


def eigvalsh() -> torch.Tensor:
    return torch.linalg.eigvalsh(S)


def eigvalsh_of_the_upper_half() -> torch.Tensor:
    return torch.linalg.eigvalsh(S, UPLO="U")


def eigvalsh_in_three_lines() -> torch.Tensor:
    return torch.linalg.eigvalsh(
        S,
    )


def svdvals() -> torch.Tensor:
    return torch.linalg.svdvals(M)


def matrix_rank() -> torch.Tensor:
    return torch.linalg.matrix_rank(M)


def condition() -> torch.Tensor:
    return torch.linalg.cond(M)


def nuclear_norm() -> torch.Tensor:
    return torch.linalg.matrix_norm(M, "nuc")


def without_gradients() -> torch.Tensor:
    with torch.no_grad():
        return torch.linalg.eigvalsh(P)


@pytest.mark.parametrize(
    ("step", "name", "arguments"),
    [
        (eigvals, "_linalg_eigvals", of_one()),
        (eigvalsh, "_linalg_eigh", of_one('"L"', "false")),
        (eigvalsh_of_the_upper_half, "_linalg_eigh", of_one('"U"', "false")),
        (eigvalsh_in_three_lines, "_linalg_eigh", of_one('"L"', "false")),
        (svdvals, "_linalg_svd", of_one("false", "false")),
        (matrix_rank, "_linalg_svd", of_one("false", "false")),
        (condition, "_linalg_svd", of_one("false", "false")),
        (nuclear_norm, "_linalg_svd", of_one("false", "false")),
        (without_gradients, "_linalg_eigh", of_one('"L"', "false")),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_values_are_computed_without_vectors(step: Step, name: str, arguments: str) -> None:
    run, found = watched(step)
    assert calls(run) == [(name, arguments)]
    assert torch.equal(found, step()), "the step gets what it gets where nothing watches"


def eig() -> Any:
    return torch.linalg.eig(M)


def eigh() -> Any:
    return torch.linalg.eigh(S)


def svd() -> Any:
    return torch.linalg.svd(M)


def older_svd() -> Any:
    return torch.svd(M)


def eigh_of_what_a_norm_divides() -> Any:
    return torch.linalg.eigh(S / torch.linalg.norm(S))


def eigh_beside_its_values() -> Any:
    return *torch.linalg.eigh(S), torch.linalg.eigvalsh(S)


def eigh_by_another_name() -> Any:
    decompose = torch.linalg.eigh
    return decompose(S / torch.linalg.norm(S))


def eigh_by_a_misleading_name() -> Any:
    eigvalsh = torch.linalg.eigh
    return eigvalsh(S)


NAMED = (eigh_by_another_name, eigh_by_a_misleading_name)


@pytest.mark.parametrize(
    "step",
    [eig, eigh, svd, older_svd, eigh_of_what_a_norm_divides, eigh_beside_its_values, *NAMED],
    ids=lambda step: step.__name__,
)
def test_vectors_that_are_asked_for_are_there(step: Step) -> None:
    run, found = watched(step)
    _, arguments = calls(run)[0]
    assert "false" not in arguments, "the first call is that for vectors"
    expected = step()
    assert [each.shape for each in found] == [each.shape for each in expected]
    assert all(torch.allclose(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def test_a_gradient_needs_the_vectors() -> None:
    def step() -> Any:
        P.grad = None
        torch.linalg.eigvalsh(P).square().sum().backward()
        return P.grad

    run, found = watched(step)
    assert calls(run) == [("_linalg_eigh", of_one())]
    assert torch.allclose(found, step())


def test_a_line_that_cannot_be_read_gets_all() -> None:
    """Without its text the use of a result in a line is unknown."""
    space = {"torch": torch, "S": S}
    exec("def step():\n    return torch.linalg.eigvalsh(S)\n", space)
    run, found = watched(space["step"])
    assert calls(run) == [("_linalg_eigh", of_one())]
    assert torch.allclose(found, eigvalsh())


def test_values_beside_vectors_are_computed_without() -> None:
    run, _ = watched(eigh_beside_its_values)
    assert calls(run) == [("_linalg_eigh", of_one()), ("_linalg_eigh", of_one('"L"', "false"))]


def test_functions_by_other_names_are_looked_up() -> None:
    values = torch.linalg.eigvals
    run, found = watched(lambda: values(M))
    assert calls(run) == [("_linalg_eigvals", of_one())]
    assert torch.equal(found, eigvals())


class Lazy:
    """An object of the program's own, whose attributes do something."""

    asked = 0

    def __getattr__(self, name: str) -> Any:
        type(self).asked += 1
        return getattr(torch.linalg, name)


def test_nothing_of_the_program_is_asked_for_an_attribute() -> None:
    lazy = Lazy()
    run, found = watched(lambda: lazy.eigvalsh(S))
    assert Lazy.asked == 1, "by the program itself"
    assert calls(run) == [("_linalg_eigh", of_one())]
    assert torch.allclose(found, eigvalsh())


def test_other_operators_run_as_they_are_called() -> None:
    assert as_asked(torch.ops.aten.mm.default, (M, M)) is None
