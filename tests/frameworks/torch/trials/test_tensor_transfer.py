"""Tensors are transferred from one program to another unchanged, and a broken file is an error."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from joulediff.frameworks.torch.trials import tensor_transfer
from joulediff.frameworks.torch.trials.tensor_transfer import read_tensors, write_tensors
from joulediff.model.errors import JoulediffError

X = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)


def there_and_back(path: Path, *tensors: torch.Tensor) -> list[torch.Tensor]:
    write_tensors(path / "t", dict(enumerate(tensors)))
    return list(read_tensors(path / "t").values())


TYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.uint8,
    torch.bool,
)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    (found,) = there_and_back(tmp_path, X.to(dtype))
    assert found.dtype == dtype
    assert torch.equal(found.to(torch.complex64), X.to(dtype).to(torch.complex64))


@pytest.mark.parametrize(
    "tensor",
    [
        X.permute(2, 0, 1),
        X[:, 1:, ::2],
        X.expand(5, 2, 3, 4),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(X),
    ],
    ids=["permuted", "with gaps", "expanded", "a number", "nothing", "channels last", "conjugated", "a parameter"],
)
def test_every_form(tmp_path: Path, tensor: torch.Tensor) -> None:
    (found,) = there_and_back(tmp_path, tensor)
    assert torch.equal(found, tensor)
    assert (found.shape, found.stride()) == (tensor.shape, tensor.stride())
    assert not found.requires_grad


def test_several_by_their_values(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", {7: X, 3: X + 1})
    found = read_tensors(tmp_path / "t")
    assert list(found) == [7, 3]
    assert torch.equal(found[7], X) and torch.equal(found[3], X + 1)


def test_an_exported_tensor_is_a_copy(tmp_path: Path) -> None:
    own = X.clone()
    (found,) = there_and_back(tmp_path, own)
    found.zero_()
    assert torch.equal(own, X)


class Wrapped(torch.Tensor):
    """A tensor of a library's own."""


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.eye(3).to_sparse(), "a sparse tensor"),
        (torch.ones(2).as_subclass(Wrapped), "a tensor of a custom type"),
    ],
)
def test_tensors_that_cannot_be_exported(tmp_path: Path, tensor: torch.Tensor, why: str) -> None:
    with pytest.raises(JoulediffError, match=f"it reads {why} that only the other program has"):
        write_tensors(tmp_path / "t", {0: tensor})
    assert not (tmp_path / "t").exists()


def test_too_large_tensors_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_transfer, "MAX_BYTES", 3 << 20)
    with pytest.raises(JoulediffError, match="it reads 4 MB that only the other program has"):
        write_tensors(tmp_path / "t", {0: torch.zeros(1 << 20)})


def entry(**changes: Any) -> dict[str, Any]:
    return {"value": 0, "dtype": "float32", "shape": [2], "strides": [1], "device": "cpu", **changes}


@pytest.mark.parametrize(
    "entries",
    [
        [entry(shape=[1 << 40])],
        [entry(), entry(value=1)],
        [entry(shape=[-2])],
        [entry(strides=[-1])],
        [entry(strides=[1, 1])],
        [entry(dtype="nothing")],
        [entry(dtype="ones")],
        [entry(device="moon:0")],
        [entry(strides=[1 << 40])],
        [{}],
        {"a": 1},
        3,
    ],
)
def test_a_file_with_wrong_sizes_is_an_error(tmp_path: Path, entries: Any) -> None:
    header = json.dumps(entries).encode()
    (tmp_path / "t").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(JoulediffError, match="cannot be read"):
        read_tensors(tmp_path / "t")


@pytest.mark.parametrize("text", [b"", b"1234", struct.pack("<Q", 1 << 40), struct.pack("<Q", 4) + b"no{}"])
def test_a_broken_file_is_an_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t").write_bytes(text)
    with pytest.raises(JoulediffError, match="cannot be read"):
        read_tensors(tmp_path / "t")
    with pytest.raises(JoulediffError, match="cannot be read"):
        read_tensors(tmp_path / "nowhere")
