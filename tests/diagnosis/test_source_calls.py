"""The calls in a line of source code, and which of them ran an operator."""

from __future__ import annotations

import pytest

from joulediff.diagnosis.evidence.calls.source_calls import call_behind, calls_in
from joulediff.model.run import SourceText
from run_builders import RunBuilder


@pytest.mark.parametrize(
    ("op", "line", "call"),
    [
        ("clone", "x = x.transpose(1, 2).contiguous().view(2, 3)", "contiguous"),
        ("clone", "k = k.repeat_interleave(4, dim=1)", "repeat_interleave"),
        ("clone", "y = y.reshape(a, b)", "reshape"),
        ("_to_copy", "x = x.float()", "float"),
        ("_to_copy", "return x.to(torch.float64)", "to"),
        ("cat", "out = torch.stack(parts)", "stack"),
        ("index_select", "v = v.repeat_interleave(n)", "repeat_interleave"),
        ("_local_scalar_dense", "if loss.item() > 3:", "item"),
        ("_local_scalar_dense", "total += float(loss)", "float"),
        ("constant_pad_nd", "x = F.pad(x, (0, 1))", "pad"),
        ("native_layer_norm", "return F.layer_norm(x, s)", "layer_norm"),
        ("gelu", "x = F.gelu(x)", "gelu"),
        ("clone", "x = f(y)", "clone"),
        ("_softmax", "x = attention(q, k)", "softmax"),
        ("_local_scalar_dense", "x = y", "item"),
        ("mm", "y = table.flatten(1) @ patches", "matmul"),
        ("bmm", "hidden = torch.einsum('td,edh->eth', x, w)", "einsum"),
        ("mm", "y = run(x)  # a product", "mm"),
        ("im2col", "patches = F.unfold(x, 3)", "unfold"),
        ("_linalg_eigh", "values = torch.linalg.eigvalsh(m)", "eigvalsh"),
        ("isnan", "median = torch.quantile(x, 0.5)", "quantile"),
        ("isnan", "median = torch.quantile(x.abs(), 0.5)", "isnan"),
    ],
)
def test_the_call_behind_an_operator(op: str, line: str, call: str) -> None:
    made = RunBuilder()
    at = made.frame("p.py", 7, "step")
    number = made.op(f"aten::{op}", frame=at)
    made.sources.append(SourceText("p.py", 6, f"def step():\n    {line}\n"))
    run = made.build()
    assert call_behind(run, number, run.frames[at]) == call


def test_calls_with_lines_of_their_own_and_those_of_other_operators_did_not_run_it() -> None:
    made = RunBuilder()
    step, loss = made.frame("p.py", 7, "step"), made.frame("p.py", 8, "step")
    inverse = made.frame("p.py", 3, "Optimizer.inverse", parent=step)
    made.op("aten::cholesky_inverse", frame=inverse)
    made.op("aten::mul", frame=step)
    made.op("aten::pow", frame=loss)
    made.op("aten::mean", frame=loss)
    text = "direction = torch.kron(self.inverse(a), self.inverse(b))\nloss = (x - y).square().mean()\n"
    made.sources.append(SourceText("p.py", 7, text))
    run = made.build()
    named = [call_behind(run, op, run.frames[at]) for op, at in ((1, step), (2, loss), (3, loss))]
    assert named == ["kron", "square", "mean"]


def test_a_module_is_called_by_its_attribute() -> None:
    made = RunBuilder()
    at = made.frame("p.py", 7, "step")
    made.op("aten::addmm", frame=at, module="decoder.attention.keys")
    made.sources.append(SourceText("p.py", 7, "scores = self.mix(self.queries(q) + self.keys(k))\n"))
    run = made.build()
    assert call_behind(run, 0, run.frames[at]) == "keys"


def test_without_the_line_the_operator_has_its_own_name() -> None:
    made = RunBuilder()
    made.op("aten::_softmax")
    made.op("aten::_local_scalar_dense")
    run = made.build()
    assert call_behind(run, 0, None) == "softmax"
    assert call_behind(run, 1, None) == "item"


def test_a_line_that_is_a_part_of_a_statement_is_read_as_text() -> None:
    assert calls_in("torch.cat([a, b.float(),") == ["cat", "float"]
    assert set(calls_in("y = f(x)(z).view(-1)")) == {"f", "view"}
