"""Diffs that tests are made of: the one of a GPT-2 with three wastes, and any other that keeps its own rules."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from joulediff.model.diff import (
    SCHEMA,
    ConditionDifference,
    Diff,
    DiffSide,
    Ledger,
    NamedDivergence,
    NotExplained,
    OtherDifference,
    Row,
    RowVerdict,
    StepCost,
    Thresholds,
)
from joulediff.model.energy import Energy, Ratio, Source
from joulediff.model.finding import Cause, Confirmation, Cost, Finding, Function, Proof, Trial, WholeRun, Work
from joulediff.model.measurement import Account
from joulediff.model.place import Place

ACT = "/venv/lib/python3.11/site-packages/transformers/activations.py"
MODEL = "/venv/lib/python3.11/site-packages/transformers/models/gpt2/modeling_gpt2.py"
KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >"
)


def energy(joules: float, share: float = 0.01, source: Source = "replayed") -> Energy:
    half_j = abs(joules) * share
    return Energy(joules, joules - half_j, joules + half_j, source)


def side(label: str, joules: float, **changes: Any) -> DiffSide:
    facts: dict[str, Any] = {
        "label": label,
        "program": f"{label}.py",
        "created": "2026-01-05T10:00:00+00:00",
        "step": StepCost(energy(joules, 0.011, "metered"), 0.4312, 20, 400),
        "device": "NVIDIA H200",
        "clock_mhz": 1980.0,
        "temperature_c": 44.0,
        "trustworthy": True,
        "warnings": (),
        "notes": (),
        "ops": 685,
        "unmatched": 12,
        "unmatched_names": ("aten::copy_",),
        "matched_share": 0.98,
    }
    return DiffSide(**{**facts, **changes})


def finding(number: int, a_j: float | None, b_j: float | None, **changes: Any) -> Finding:
    dear_j, cheap_j = max(a_j or 0.0, b_j or 0.0), min(a_j or 0.0, b_j or 0.0)
    facts: dict[str, Any] = {
        "id": f"f{number}",
        "kind": "misconfiguration",
        "verdict": "waste",
        "expensive": "a" if (a_j or 0.0) >= (b_j or 0.0) else "b",
        "region": "addmm",
        "where": "transformer.h.*.mlp.c_fc",
        "regions": tuple(range(48)),
        "energy_a": None if a_j is None else energy(a_j),
        "energy_b": None if b_j is None else energy(b_j),
        "delta_j": dear_j - cheap_j,
        "ratio": dear_j / cheap_j if cheap_j else None,
        "share_of_run": (dear_j - cheap_j) / 612.4,
        "p_value": 0.0002,
        "time_a_s": 0.0612,
        "time_b_s": 0.0391,
        "difference": 1.2e-7,
        "ops_a": ("aten::addmm",),
        "ops_b": ("aten::addmm",),
        "kernels_a": ("ampere_sgemm_128x64_tn",),
        "kernels_b": ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1",),
        "path_a": (Place("/code/hf.py", 12, "build"), Place(MODEL, 310, "forward")),
        "path_b": (Place("/code/lean.py", 14, "build"), Place(MODEL, 310, "forward")),
        "function_a": Function(Place(MODEL, 310, "forward"), "transformer.h.*.mlp.c_fc"),
        "function_b": Function(Place(MODEL, 310, "forward"), "transformer.h.*.mlp.c_fc"),
        "cause": Cause("setting", "allow_tf32", False, True, None, None, ("The one setting that differs.",)),
        "word": "cause confirmed",
        "confirmation": Confirmation(
            (Trial("allow_tf32=True", energy(1.271), energy(0.815), energy(0.812), difference=2.1e-4, explains=True),),
            22.0,
            0.036,
        ),
        "suggestion": 'Call torch.set_float32_matmul_precision("high") before the model runs: its matrix products '
        "then use TF32, as in B.",
    }
    facts |= changes
    parts = {
        name: part(**{each.name: facts.pop(each.name) for each in fields(part)})
        for name, part in {"cost": Cost, "work": Work, "proof": Proof}.items()
    }
    return Finding(**facts, **parts)


def divergence(**changes: Any) -> NamedDivergence:
    """Return an activation that differs in one layer."""
    facts: dict[str, Any] = {
        "name": "silu ↔ gelu",
        "where": "model.layers.7.mlp.act_fn",
        "ops_a": ("aten::silu",),
        "ops_b": ("aten::gelu",),
        "location_a": Place("/code/hf.py", 12, "forward", "return act(x)"),
        "location_b": Place("/code/lean.py", 14, "forward", "return gelu(x)"),
        "difference": 0.031,
        "expected": 0.002,
    }
    return NamedDivergence(**{**facts, **changes})


def changed(found: Finding, **changes: Any) -> Finding:
    """Return a finding with other facts, whichever part of it they belong to."""
    for name in ("cost", "work", "proof"):
        part = getattr(found, name)
        mine = {each.name: changes.pop(each.name) for each in fields(part) if each.name in changes}
        changes[name] = replace(part, **mine)
    return replace(found, **changes)


def gelu() -> Finding:
    """Five kernels instead of one, with the whole program measured as well."""
    whole = WholeRun(
        "activation_function=gelu_pytorch_tanh",
        energy(612.4, 0.01, "metered"),
        energy(540.8, 0.01, "metered"),
        0.4312,
        0.4007,
        0.117,
        1.1e-6,
    )
    outer = (Place("/code/hf.py", 12, "build"), Place(MODEL, 310, "forward"))
    trial = Trial(
        "torch.nn.functional.gelu", energy(7.867), energy(1.781), energy(1.775), difference=0.0, explains=True
    )
    return finding(
        1,
        94.4,
        21.3,
        kind="api_misuse",
        region="pow, mul, add, 5 more ↔ gelu",
        where="transformer.h.*.mlp.act",
        word="replacement confirmed",
        regions=tuple(range(100, 112)),
        kernels_a=(KERNEL, "void at::native::pow_tensor_scalar_kernel", "tanh_kernel", "add_kernel", "mul_kernel"),
        kernels_b=("void at::native::vectorized_gelu_kernel<4, float>",),
        path_a=(*outer, Place(ACT, 48, "forward"), Place(ACT, 56, "gelu_new")),
        path_b=(*outer, Place(ACT, 48, "forward"), Place(ACT, 141, "forward")),
        function_a=Function(Place(ACT, 56, "gelu_new"), "transformer.h.*.mlp.act"),
        function_b=Function(Place(ACT, 141, "forward"), "transformer.h.*.mlp.act"),
        cause=Cause(
            "call_path",
            "activation_function",
            "gelu_new",
            "gelu_pytorch_tanh",
            Place(
                ACT, 56, "forward", "return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + x)))"
            ),
            Place(ACT, 141, "forward", "        return self.act(input)"),
            ("Both paths are alike up to activations.py:48.", "There ACT2FN takes another entry."),
        ),
        confirmation=Confirmation((trial,), 73.1, 0.119, whole),
        suggestion='Set activation_function="gelu_pytorch_tanh" in the configuration of the model: the same function '
        "in one kernel instead of eight.",
    )


def host_wait() -> Finding:
    cause = Cause(
        "host",
        None,
        None,
        None,
        Place("/code/generate.py", 412, "step", "if bool(done.all()):"),
        None,
        ("not tried: waits cannot be replayed alone",),
    )
    return finding(
        3,
        30.1,
        17.7,
        kind="host",
        region="idle between steps",
        where="",
        regions=(),
        kernels_a=(),
        kernels_b=(),
        function_a=None,
        function_b=None,
        cause=cause,
        word="observed",
        confirmation=None,
        suggestion="Look at the flag once in 16 steps: every look makes the host wait for the GPU.",
    )


def row(name: str, a_j: float | None, b_j: float | None, verdict: RowVerdict = "noise", **changes: Any) -> Row:
    facts: dict[str, Any] = {
        "name": name,
        "where": "transformer.h.*.attn",
        "kind": "equal",
        "count": 12,
        "ops_a": 0 if a_j is None else 1,
        "ops_b": 0 if b_j is None else 1,
        "energy_a": None if a_j is None else energy(a_j),
        "energy_b": None if b_j is None else energy(b_j),
        "verdict": verdict,
    }
    return Row(**{**facts, **changes})


def ledger(joules: float, **changes: Any) -> Ledger:
    domain = Account(
        "gpu0", energy(joules, 0.011, "metered"), energy(joules * 0.95), energy(joules * 0.05), None, None, None, True
    )
    return replace(Ledger((domain,), "replayed", 12), **changes)


def gpt2_diff(**changes: Any) -> Diff:
    """Return the diff of two GPT-2 programs: three wastes explain most of what differs."""
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "created": "2026-01-05T10:10:00+00:00",
        "tool": "0.1.0",
        "a": side("hf", 612.4),
        "b": side("lean", 494.2, ops=470, unmatched=0, unmatched_names=(), matched_share=1.0),
        "ratio": Ratio(1.239, 1.219, 1.26),
        "delta_j": 118.2,
        "delta_low_j": 109.3,
        "delta_high_j": 127.1,
        "comparable": True,
        "condition_differences": (),
        "explained_share": 0.91,
        "findings": (gelu(), finding(2, 61.0, 39.0), host_wait()),
        "rows": (
            row("pow, mul, add, 5 more ↔ gelu", 94.4, 21.3, "finding", finding="f1"),
            row("addmm", 61.0, 39.0, "finding", finding="f2", count=48),
            row("mm", 300.04, 300.21),
            row("native_layer_norm", 60.03, 59.61, count=1),
            row("bmm", 56.93, 56.38, count=1),
            row("copy_", 6.3, None, "only_a"),
            row("(idle)", 30.1, 17.7, "finding", kind="idle", finding="f3", where="", count=1, ops_a=0, ops_b=0),
            row("(unexplained)", 3.6, 0.0, "unknown", kind="unexplained", where="", count=1, ops_a=0, ops_b=0),
        ),
        "ledger_a": ledger(612.4),
        "ledger_b": ledger(494.2),
        "thresholds": Thresholds(),
        "notes": (),
        "next": "joulediff diff hf.jd lean.jd -o report.html",
    }
    return Diff(**{**facts, **changes})


def mixed_diff() -> Diff:
    """Return a diff with a trade-off, a waste of B, changes that are no finding, doubts, and more than fits."""
    missed = Confirmation(
        (Trial("dtype=bfloat16", energy(0.00412), energy(0.00398), energy(0.00298), difference=0.034),)
    )
    trade = finding(
        2,
        0.0412,
        0.0298,
        id="t1",
        verdict="tradeoff",
        region="scaled_dot_product_attention",
        time_a_s=0.00031,
        time_b_s=0.00036,
        difference=0.034,
        cause=Cause("setting", "dtype", "float32", "bfloat16", None, None),
        word="observed",
        share_of_run=0.051,
        confirmation=missed,
    )
    copies = finding(
        1,
        0.0101,
        0.0295,
        id="w1",
        kind="redundant",
        region="contiguous",
        regions=(4, 5),
        cause=Cause("redundancy", "contiguous", None, None, None, Place("/code/lean.py", 12, "forward", "x = x.t()")),
        word="observed",
        confirmation=None,
        share_of_run=0.089,
        suggestion="Leave out the copy: what reads it takes the transposed tensor as well.",
    )
    stride = finding(
        3,
        0.0021,
        None,
        id="w2",
        region="native_batch_norm",
        cause=Cause("layout", "strides", "(50176, 1, 224, 3)", "(50176, 224, 1, 3)", None, None),
        word="observed",
        confirmation=Confirmation((Trial("strides of B", energy(0.0005), None, None, note="it could not be rebuilt"),)),
        share_of_run=0.009,
        kernels_b=(),
    )
    regions = (
        row("contiguous", 0.0101, 0.0295, "finding", finding="w1"),
        row("scaled_dot_product_attention", 0.0412, 0.0298, "finding", finding="t1"),
        row("native_batch_norm", 0.0021, None, "finding", finding="w2"),
        *(row(f"add_{n}", 0.001 * n, 0.0009 * n, "changed", count=n) for n in range(1, 16)),
        *(row(f"mul_{n}", 0.002, 0.00199) for n in range(14)),
        *(row(f"aten::embedding_{n}", None, 0.0001, "only_b", count=1) for n in range(14)),
        row("no counterpart", 0.0009, None, "changed", kind="unmatched", count=1, ops_a=3, ops_b=0),
        row("(idle)", 0.021, 0.0204, kind="idle", count=1),
        row("(host)", 0.002, None, "unknown", kind="host", count=1),
        row("(unexplained)", -0.0012, 0.0004, "unknown", kind="unexplained", count=1),
    )
    total_a, total_b = (
        sum(getattr(r, key).joules for r in regions if getattr(r, key)) for key in ("energy_a", "energy_b")
    )
    return gpt2_diff(
        a=side("resnet eager with a label that is rather long", total_a, program="examples/models/resnet_eager.py"),
        b=side("lean", total_b, clock_mhz=1755.0, trustworthy=False, warnings=("gpu0 is used by process 4711",)),
        ratio=Ratio(1.031, 1.021, 1.041),
        delta_j=0.0067,
        delta_low_j=0.0046,
        delta_high_j=0.0088,
        condition_differences=(
            ConditionDifference("clock", 1980, 1755, False),
            ConditionDifference("torch", "2.13.0", "2.12.1", False),
        ),
        explained_share=None,
        findings=(copies, trade, stride),
        rows=regions,
        ledger_a=ledger(total_a, split="attributed"),
        ledger_b=ledger(total_b),
        notes=("2 outputs of the step were not compared: they are integers",),
        next=None,
    )


def open_diff() -> Diff:
    """Return a diff whose findings explain a tenth: the host of A is slower, with the same kernels for the rest."""
    found = gpt2_diff()
    host = row("(host: Python, launches)", 96.4, 0.3, "changed", kind="host", where="", count=1, ops_a=0, ops_b=0)
    rest = NotExplained(
        Energy(96.2, 87.1, 105.3, "metered"),
        (Place(MODEL, 310, "GPT2Model.forward", "hidden_states = block(hidden_states)"),),
        (Place("/code/lean.py", 14, "step", "return model(ids)"),),
        ("time of the host: Python code and launches (+96.10 J)", "a step takes 431.2 ms in A and 310.0 ms in B"),
    )
    return replace(
        found,
        findings=(finding(2, 61.0, 39.0),),
        rows=(found.rows[1], row("mm", 455.0, 454.9), host),
        explained_share=0.186,
        not_explained=rest,
        also_differs=(
            OtherDifference(
                "torch.backends.cuda.flash_sdp_enabled", False, True, Place("/code/hf.py", 12, "build"), None
            ),
            OtherDifference("env.OMP_NUM_THREADS", None, "1", None, None),
        ),
    )


def unlike_diff() -> Diff:
    """Return a diff whose joules are not comparable."""
    found = gpt2_diff()
    return replace(
        found,
        comparable=False,
        findings=(),
        explained_share=None,
        b=replace(found.b, device="NVIDIA A100-SXM4-80GB", clock_mhz=1410.0),
        condition_differences=(
            ConditionDifference("device", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", True),
            ConditionDifference("driver", "570.86.15", "550.54", False),
        ),
        rows=tuple(replace(each, verdict="unknown", finding=None) for each in found.rows),
        next=None,
    )


def same_diff() -> Diff:
    """Return the diff of a program with itself."""
    return gpt2_diff(
        b=side("again", 611.1),
        ratio=Ratio(1.002, 0.984, 1.021),
        delta_j=1.3,
        delta_low_j=-9.7,
        delta_high_j=12.6,
        explained_share=None,
        findings=(),
        rows=(
            *(row(f"op {n}", 40.0 + 0.01 * n, 39.91 + 0.01 * n, count=1) for n in range(14)),
            row("(idle)", 51.49, 51.45, kind="idle", count=1),
        ),
        next=None,
    )


def unmeasured_diff() -> Diff:
    """Return a diff of runs that were recorded without a meter."""
    found = gpt2_diff()

    def without(each: DiffSide) -> DiffSide:
        return replace(each, step=StepCost(None, None, 0, 0), clock_mhz=None, temperature_c=None, device="")

    rows = [replace(each, energy_a=None, energy_b=None, verdict="unknown", finding=None) for each in found.rows[:6]]
    return replace(
        found,
        a=without(found.a),
        b=without(found.b),
        ratio=None,
        delta_j=None,
        findings=(),
        explained_share=None,
        rows=tuple(rows),
        ledger_a=Ledger((), None, 0),
        ledger_b=Ledger((), None, 0),
        notes=("no energy verdicts: neither run was metered",),
    )


HOSTILE = (
    "\x1b[31m|`@everyone` <script>alert(1)</script>\n# [x](http://evil) **b** \\| $x$ \u202e #12 &amp; www.evil.org"
)


def hostile_diff() -> Diff:
    """Return a diff in which every text is hostile."""

    def spoil(value: Any) -> Any:
        if isinstance(value, str):
            return HOSTILE
        if isinstance(value, tuple):
            return tuple(spoil(each) for each in value)
        if hasattr(value, "__dataclass_fields__"):
            return replace(value, **{n: spoil(getattr(value, n)) for n in value.__dataclass_fields__ if n not in _KEPT})
        return value

    places = (divergence(), divergence(difference=0.001))
    found: Diff = spoil(replace(mixed_diff(), next="x", not_explained=open_diff().not_explained, divergences=places))
    return found


# Words that are compared, or taken from a list: these are what they are.
_KEPT = ("schema", "kind", "verdict", "expensive", "type", "source", "id", "finding", "split", "basis", "word")

# Half surrogate pairs cannot be stored.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(-(2**63), 2**63)


@st.composite
def energies(draw: st.DrawFn) -> Energy:
    joules, ends = draw(NUMBER), sorted(draw(st.tuples(*[st.floats(allow_nan=False)] * 2)))
    return Energy(joules, min(ends[0], joules), max(ends[1], joules), draw(st.sampled_from(get_args(Source))))


def diffs() -> st.SearchStrategy[Diff]:
    """Return any diff."""
    return anything(Diff)


@cache
def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Return whatever a field of this type may hold."""
    origin, options = get_origin(hint), get_args(hint)
    simple = {str: TEXT, float: NUMBER, int: COUNT, bool: st.booleans(), NoneType: st.none(), Energy: energies()}
    if hint in simple:
        return simple[hint]
    if origin is Literal:
        return st.sampled_from(options)
    if origin is tuple:
        return st.lists(anything(options[0]), max_size=3).map(tuple)
    if options:
        return st.one_of(*map(anything, options))
    fields = {name: anything(each) for name, each in get_type_hints(hint).items() if name != "schema"}
    return st.builds(hint, **fields, **({"schema": st.just(SCHEMA)} if hint is Diff else {}))
