"""Runs made by hand: a `RunBuilder` that keeps ids right, and a GPT-2 with its operators, kernels and waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from joulediff.model.energy import Energy
from joulediff.model.measurement import Condition, DeviceState, DomainEnergy, IdlePower, Measurement
from joulediff.model.run import Frame, Kernel, Op, Pass, Run, SourceText, Value, Wait

MODEL_FILE = "transformers/models/gpt2/modeling_gpt2.py"
ACTIVATION_FILE = "transformers/activations.py"
USER_FILE = "examples/gpt2.py"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4>(Params)"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 2ul> >(int, {}, std::array)"
)


class RunBuilder:
    """Collects the parts of a run; each method returns the id of what it added."""

    def __init__(self, device: str = "cuda:0") -> None:
        self.device = device
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.frames: list[Frame] = []
        self.kernels: list[Kernel] = []
        self.waits: list[Wait] = []
        self.sources: list[SourceText] = []
        self.now_s = 0.0

    def frame(self, file: str, line: int, function: str, *, owner: str | None = None, parent: int | None = None) -> int:
        found = Frame(file, line, function, owner, parent)
        if found not in self.frames:
            self.frames.append(found)
        return self.frames.index(found)

    def value(self, shape: Sequence[int] = (8, 128, 768), **changes: Any) -> int:
        strides: list[int] = []
        size = 1
        for length in reversed(shape):
            strides.insert(0, size)
            size *= length
        facts: dict[str, Any] = {
            "strides": tuple(strides),
            "offset": 0,
            "dtype": "float32",
            "device": self.device,
            "storage": len(self.values),
            "kind": "produced",
            "name": None,
            "producer": None,
            "previous": None,
            "writers": (),
            "signature": None,
            "repeats": 1,
        }
        self.values.append(Value(len(self.values), tuple(shape), **{**facts, **changes}))
        return len(self.values) - 1

    def op(self, name: str, *, inputs: Sequence[int] = (), outputs: Sequence[int] = (), **changes: Any) -> int:
        facts: dict[str, Any] = {
            "overload": "default",
            "arguments": "[" + ", ".join(f'{{"tensor": {i}}}' for i in range(len(inputs))) + "]",
            "returns": '{"tensor": 0}',
            "writes": (),
            "frame": None,
            "module": None,
            "module_type": None,
            "phase": "forward",
            "forward": None,
            "thread": 0,
            "device": self.device,
            "stream": 7 if self.device != "cpu" else None,
            "region": None,
            "grad": False,
            "inference": False,
            "autocast": None,
            "compiled": False,
        }
        self.ops.append(
            Op(id=len(self.ops), name=name, inputs=tuple(inputs), outputs=tuple(outputs), **{**facts, **changes})
        )
        return len(self.ops) - 1

    def kernel(
        self, name: str, duration_s: float, *, op: int | None = None, after_s: float = 0.0, **changes: Any
    ) -> None:
        """Add a kernel that starts `after_s` behind the one before."""
        facts: dict[str, Any] = {
            "kind": "kernel" if self.device != "cpu" else "cpu",
            "device": self.device,
            "stream": 7 if self.device != "cpu" else 0,
            "start_s": self.now_s + after_s,
            "module": None,
            "join": "none" if op is None else "op",
        }
        self.kernels.append(Kernel(name=name, duration_s=duration_s, op=op, **{**facts, **changes}))
        self.now_s = self.kernels[-1].start_s + duration_s

    def wait(self, name: str, duration_s: float, *, op: int | None = None, start_s: float | None = None) -> None:
        self.waits.append(Wait(name, self.now_s if start_s is None else start_s, duration_s, op, 0))

    def build(self, **changes: Any) -> Run:
        facts: dict[str, Any] = {
            "label": "gpt2",
            "program": "examples/gpt2.py:build",
            "created": "2026-11-20T10:31:22+00:00",
            "tool": "0.2.0",
            "traced_s": self.now_s + 20e-6 if self.kernels else None,
            "ops": tuple(self.ops),
            "values": tuple(self.values),
            "frames": tuple(self.frames),
            "kernels": tuple(self.kernels),
            "waits": tuple(self.waits),
            "sources": tuple(self.sources),
        }
        return Run(**{**facts, **changes})


def energy(joules: float, share: float = 0.01, source: Any = "metered") -> Energy:
    return Energy(joules, joules - share * abs(joules), joules + share * abs(joules), source)


def domain_energy(joules: float, step_s: float, rest_w: float | None = 75.8, **changes: Any) -> DomainEnergy:
    idle = None if rest_w is None else IdlePower(rest_w, 0.99 * rest_w, 1.01 * rest_w, 0.004, 1.0)
    facts: dict[str, Any] = {
        "energy": energy(joules),
        "net_energy": None if rest_w is None else energy(joules - rest_w * step_s, 0.02),
        "power_w": joules / step_s,
        "idle": idle,
        "kind": "counter",
        "device": "NVIDIA H200",
        "counted": True,
    }
    return DomainEnergy(**{**facts, **changes})


def measurement(step_s: float = 7.0e-3, **changes: Any) -> Measurement:
    cpu = domain_energy(
        0.0481,
        step_s,
        None,
        energy=energy(0.0481, 0.1, "estimated"),
        device="Intel Xeon, 6.2 W a busy core assumed",
        counted=False,
    )
    facts: dict[str, Any] = {
        "label": "gpt2",
        "step_s": step_s,
        "repeats": 8,
        "steps": 640,
        "energy": energy(3.1234),
        "net_energy": energy(3.1234 - 75.8 * step_s, 0.02),
        "domains": {"gpu0": domain_energy(3.1234, step_s), "cpu": cpu},
        "trustworthy": True,
        "conditions": (Condition("temperature", True, "41 °C", "gpu0"),),
        "states": (DeviceState("gpu0", clock_mhz=1980.0, temperature_c=44.0),),
    }
    return Measurement(**{**facts, **changes})


PASSES = (Pass("metered", "done", 5.1), Pass("traced", "done", 1.2), Pass("captured", "done", 2.9))


class Gpt2(RunBuilder):
    """A forward pass as Hugging Face writes it, with GELU in pieces and a read of the result at the end."""

    def __init__(self, layers: int = 12, device: str = "cuda:0") -> None:
        super().__init__(device)
        call = self.frame(USER_FILE, 12, "step")
        self.block = self.frame(MODEL_FILE, 311, "forward", owner="transformers", parent=call)
        act = self.frame(ACTIVATION_FILE, 56, "forward", owner="transformers", parent=self.block)
        self.act = self.frame("torch/_tensor.py", 40, "wrapped", owner="torch", parent=act)
        self.call, self.read = call, self.frame(USER_FILE, 14, "step")
        gelu = "        return 0.5 * input * (1.0 + torch.tanh(...))\n"
        self.sources.append(SourceText(ACTIVATION_FILE, 55, "    def forward(self, input):\n" + gelu))
        self.sources.append(SourceText(USER_FILE, 11, "    with torch.no_grad():\n        out = model(ids)\n"))
        self.hidden = self.value(kind="input")
        self.weight = self.value((768, 768), kind="parameter", name="weight")
        for layer in range(layers):
            self.layer(layer)
        self.work("aten::native_layer_norm", "transformer.ln_f", "LayerNorm", 9e-6, "layer_norm_kernel")
        self.work("aten::mm", "lm_head", "Linear", 260e-6, GEMM)
        found = self.op("aten::item", inputs=[self.hidden], frame=self.read)
        if device != "cpu":
            self.kernel("Memcpy DtoH (Device -> Pageable)", 2e-6, op=found, kind="memcpy", size_bytes=4, after_s=5e-6)
            self.wait("cudaStreamSynchronize", 1.8e-3, op=found, start_s=0.5e-3)

    def layer(self, layer: int) -> None:
        at = f"transformer.h.{layer}"
        gelu = ELEMENTWISE.format("{}", "Functor")
        self.work("aten::native_layer_norm", f"{at}.ln_1", "LayerNorm", 9e-6, "layer_norm_kernel", after_s=3e-6)
        self.work("aten::addmm", f"{at}.attn.c_attn", "Conv1D", 81e-6, GEMM)
        self.work("aten::view", f"{at}.attn", "GPT2Attention", 0.0, None)
        self.work(
            "aten::_scaled_dot_product_efficient_attention", f"{at}.attn", "GPT2Attention", 44e-6, "fmha_cutlassF"
        )
        self.work("aten::addmm", f"{at}.attn.c_proj", "Conv1D", 30e-6, GEMM)
        self.work("aten::add", at, "GPT2Block", 8e-6, gelu.format("CUDAFunctor_add"))
        self.work("aten::native_layer_norm", f"{at}.ln_2", "LayerNorm", 9e-6, "layer_norm_kernel")
        self.work("aten::addmm", f"{at}.mlp.c_fc", "Conv1D", 104e-6, GEMM)
        for name in ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"):
            kernel = gelu.format(f"{name}_functor")
            self.work(f"aten::{name}", f"{at}.mlp.act", "NewGELUActivation", 21e-6, kernel, frame=self.act)
        self.work("aten::addmm", f"{at}.mlp.c_proj", "Conv1D", 97e-6, GEMM)

    def work(
        self,
        name: str,
        module: str | None,
        module_type: str | None,
        duration_s: float,
        kernel: str | None,
        *,
        after_s: float = 1e-6,
        **changes: Any,
    ) -> int:
        out = self.value()
        inputs = [self.hidden, self.weight] if "mm" in name else [self.hidden]
        facts = {"frame": self.block, "module": module, "module_type": module_type, **changes}
        found = self.op(name, inputs=inputs, outputs=[out], **facts)
        if kernel is not None:
            self.kernel(kernel, duration_s, op=found, after_s=after_s)
        self.hidden = out
        return found


def gpt2_run(layers: int = 12, *, device: str = "cuda:0", **changes: Any) -> Run:
    """A complete run: metered, traced and captured."""
    facts: dict[str, Any] = {"measurement": measurement(), "passes": PASSES, "settings": {"host.os": "Linux"}}
    return Gpt2(layers, device).build(**{**facts, **changes})
