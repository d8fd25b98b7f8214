"""The captured pass: every operator the framework dispatches, with the values it reads and makes.

A dispatch mode sees each ATen operator below autograd and autocast, in every thread that works for the
step. Each is run exactly as the program asked; tensors are signed when they are made and never kept.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from joulediff.recorders.callpath import CallPaths
from joulediff.recorders.regions import current_region
from joulediff.recorders.torch.arguments import Encoder
from joulediff.recorders.torch.models import Holdings, clean_name, find_holdings
from joulediff.recorders.torch.modules import ModulePaths, is_compiled
from joulediff.recorders.torch.outputs import named_tensors
from joulediff.recorders.torch.schema import Schemas
from joulediff.recorders.torch.signature import Signers
from joulediff.recorders.torch.values import Name, Values
from joulediff.recorders.torch.watching import watch_autocast, watch_optimizers, watch_triton
from joulediff.runs import Frame, Op, Phase, Signature, Value

if TYPE_CHECKING:
    import torch

Step = Callable[[], object]

# Marks of the profiler and questions about a tensor: no work of the program's.
SKIPPED_NAMESPACES = ("profiler", "prim")
# C++ frames worth showing; the others are the machinery that takes the picture.
_CPP_NAMES = ("at::", "c10::impl", "torch::autograd", "torch::jit", "torch::nn")
# The functions that torch.compile puts around the program's own.
_COMPILER_FUNCTIONS = ("_TorchDynamoContext.", "OptimizedModule.", "compile_wrapper")


@dataclass(frozen=True, slots=True)
class Captured:
    """What one captured step was made of. `step_s`: how long it took under capture."""

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    signatures: tuple[Signature, ...]
    frames: tuple[Frame, ...]
    outputs: tuple[tuple[str, int], ...]
    """What the step returned: names and values."""
    compiled_modules: tuple[str, ...]
    changed: tuple[str | None, ...]
    """Names of what was there before the step and that the step changed."""
    files: Mapping[str, str]
    """Where each file of the frames really is."""
    step_s: float


def capture_step(
    step: Step,
    *,
    holdings: Holdings | None = None,
    begin: Callable[[], None] | None = None,
    root: Path | None = None,
    cpp: bool = False,
) -> Captured:
    """Run `step` once and return every operator of it, with signatures.

    `holdings` are its models and tensors by name, where they cannot be found from `step` itself. `begin` runs just
    before it (to seed random numbers); the user's files are named from `root` on; `cpp` adds C++ frames. The
    step's exceptions pass through, and nothing stays attached.
    """
    recorder = _Recorder(holdings or find_holdings(step), root=root, cpp=cpp)
    with recorder.attached():
        if begin is not None:
            begin()
        start_s = time.perf_counter()
        output = recorder.call(step)
        recorder.wait()
        step_s = time.perf_counter() - start_s
    return recorder.finish(output, step_s)


@dataclass(slots=True)
class _Draft:
    """An operator before all operators are known."""

    name: str
    overload: str
    arguments: str
    returns: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    frame: int | None
    place: tuple[str | None, str | None]
    phase: Phase
    forward: int | None
    thread: int
    device: str
    stream: int | None
    region: str | None
    grad: bool
    inference: bool
    autocast: str | None
    cpp: object = None


class _Recorder:
    def __init__(self, holdings: Holdings, *, root: Path | None, cpp: bool) -> None:
        import torch

        self._torch = torch
        self._holdings = holdings
        self._signers = Signers()
        self._values = Values(self._signers)
        self._paths = CallPaths(_Recorder.call.__code__, root=root)
        self._encoder = Encoder()
        self._schemas = Schemas()
        self._drafts: list[_Draft] = []
        self._threads: dict[int, int] = {threading.get_ident(): 0}
        self._by_sequence: dict[int, int] = {}
        self._streams: dict[int, int] = {}
        self._devices: dict[Any, str] = {}
        self._optimizing: set[int] = set()
        self._autocast: str | None = None
        self._busy = False
        self._lock = threading.RLock()
        self._cpp = cpp
        self._modules: ModulePaths | None = None
        self._parameters: dict[str, torch.Tensor] = {}
        self._sequence_number = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)  # noqa: SLF001
        self._autograd_node = getattr(torch._C, "_current_autograd_node", lambda: None)  # noqa: SLF001

    def call(self, step: Step) -> object:
        """Call the step. Call paths end here."""
        return step()

    @contextmanager
    def attached(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._modules = ModulePaths(self._holdings.models, met=self._name_model)
            for name, tensor in self._holdings.tensors.items():
                self._values.name(tensor, Name("input", name))
            stack.callback(self._modules.close)
            stack.enter_context(watch_optimizers(self._begin_optimizer, self._end_optimizer))
            stack.enter_context(watch_autocast(self._note_autocast))
            stack.enter_context(watch_triton(self._run_triton))
            stack.enter_context(_eagerly(self._torch))
            stack.enter_context(_without_warning_of_hooks(self._holdings))
            stack.enter_context(_make_mode(self))
            yield

    def wait(self) -> None:
        """Wait for the devices, so that the time of the step is whole."""
        if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Run one operator and note it."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor made of tensors: the operators on its parts come next
        facts = self._schemas.of(func)
        if self._busy or facts.namespace in SKIPPED_NAMESPACES:
            return func(*args, **kwargs)
        with self._lock:
            text, tensors = self._encoder.arguments(args, kwargs)
            read = self._values.read
            inputs = tuple([read(tensor) for tensor in tensors])
            changed = facts.changed(args, kwargs) if facts.may_change else ()
            for tensor in changed:
                self._values.before_write(tensor)
        self._busy = True
        try:
            output = func(*args, **kwargs)
        finally:
            self._busy = False
        with self._lock:
            self._note(facts.name, facts.overload, text, tensors, inputs, changed, output, _caller())
        return output

    def _note(
        self,
        name: str,
        overload: str,
        text: str,
        tensors: list[Any],
        inputs: tuple[int, ...],
        changed: Any,
        output: object,
        frame: Any,
    ) -> None:
        torch, number = self._torch, len(self._drafts)
        writes = tuple([self._values.write(tensor, number) for tensor in changed])
        returns, made = self._encoder.returns(output)
        outputs = tuple([self._values.make(tensor, number) for tensor in made])
        phase, forward = self._phase(number)
        device, stream = self._where(made, tensors)
        thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        assert self._modules is not None
        self._drafts.append(
            _Draft(
                name=name,
                overload=overload,
                arguments=text,
                returns=returns,
                inputs=inputs,
                outputs=outputs,
                writes=writes,
                frame=self._paths.here(frame),
                place=self._modules.here(),
                phase=phase,
                forward=forward,
                thread=thread,
                device=device,
                stream=stream,
                region=current_region(),
                grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(),
                autocast=self._autocast if thread == 0 else None,
                cpp=torch._C._profiler.gather_traceback(False, False, True) if self._cpp else None,  # noqa: SLF001
            )
        )

    def _phase(self, number: int) -> tuple[Phase, int | None]:
        node = self._autograd_node()
        if node is not None:
            return "backward", self._by_sequence.get(node._sequence_nr())  # noqa: SLF001
        if threading.get_ident() in self._optimizing:
            return "optimizer", None
        # Autograd numbers an operator just before it runs; the first one to show a number is its owner.
        self._by_sequence.setdefault(self._sequence_number() - 1, number)
        return "forward", None

    def _where(self, made: list[Any], tensors: list[Any]) -> tuple[str, int | None]:
        """Return the device that worked, and the number of its stream."""
        busiest = None
        for tensor in (*made, *tensors):
            if busiest is None or (busiest.type == "cpu" and tensor.device.type != "cpu"):
                busiest = tensor.device
        if busiest is None:
            return "cpu", None
        name = self._devices.get(busiest)
        if name is None:
            name = self._devices[busiest] = str(busiest)
        if busiest.type != "cuda":
            return name, None
        raw = self._torch._C._cuda_getCurrentRawStream(busiest.index)  # noqa: SLF001
        return name, self._streams.setdefault(raw, len(self._streams))

    def _run_triton(self, name: str, run: Callable[[], object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Run a Triton kernel that the program launches itself, and note it as an operator.

        What it writes nobody says, so its tensors are signed before and after.
        """
        if self._busy:
            return run()
        self._busy = True
        try:
            text, tensors = self._encoder.arguments(args, kwargs)
            inputs = tuple(self._values.read(tensor) for tensor in tensors)
            for tensor in tensors:
                self._values.before_write(tensor)
            before = [self._sign(tensor) for tensor in tensors]
            output = run()
            changed = [t for t, old in zip(tensors, before, strict=True) if self._sign(t) != old]
            self._note(f"triton::{name}", "", text, tensors, inputs, changed, None, _caller())
        finally:
            self._busy = False
        return output

    def _sign(self, tensor: torch.Tensor) -> str:
        from joulediff.recorders.torch.geometry import extent_of

        signers = Signers()
        signers.sign(tensor, extent_of(tensor.shape, tensor.stride()))
        return repr(signers.finish())  # NaN equals itself in text

    def _begin_optimizer(self, optimizer: Any) -> None:
        self._optimizing.add(threading.get_ident())
        names = {id(p): name for name, p in self._parameters.items()}
        kind = type(optimizer).__name__
        for parameter, state in optimizer.state.items():
            of = names.get(id(parameter), "?")
            for key, tensor in state.items():
                if isinstance(tensor, self._torch.Tensor):
                    self._values.name(tensor, Name("input", f"{kind}.{key}.{of}"))

    def _end_optimizer(self) -> None:
        self._optimizing.discard(threading.get_ident())

    def _note_autocast(self, state: str | None) -> None:
        self._autocast = state

    def _name_model(self, root: str, model: torch.nn.Module) -> None:
        for kind, pairs in (
            ("parameter", model.named_parameters(remove_duplicate=False)),
            ("buffer", model.named_buffers(remove_duplicate=False)),
        ):
            for path, tensor in pairs:
                name = ".".join(part for part in (root, clean_name(path)) if part)
                self._values.name(tensor, Name(kind, name))  # type: ignore[arg-type]
                self._parameters[name] = tensor

    def _name_outputs(self, output: object) -> tuple[tuple[str, int], ...]:
        found = []
        for name, tensor in named_tensors(output):
            value = self._values.read(tensor)
            self._values.rename(value, name)
            found.append((name, value))
        return tuple(found)

    def finish(self, output: object, step_s: float) -> Captured:
        """Name what the step returned, sign what was put off, and put everything together."""
        with self._torch.no_grad():
            outputs = self._name_outputs(output)
            values = self._values.finish()
        frames = tuple(self._paths.frames)
        inside = _compiled_frames(frames)
        texts = self._cpp_texts()
        for draft in self._drafts:
            if draft.forward is not None and draft.place[0] is None:
                draft.place = self._drafts[draft.forward].place
        ops = tuple(_to_op(number, draft, inside, texts) for number, draft in enumerate(self._drafts))
        compiled = tuple(self._modules.compiled) if self._modules is not None else ()
        changed = tuple(None if name is None else name.text for name in self._values.changed())
        return Captured(
            ops=ops,
            values=values,
            signatures=tuple(self._signers.finish()),
            frames=frames,
            outputs=outputs,
            compiled_modules=compiled,
            changed=changed,
            files=self._paths.files,
            step_s=step_s,
        )

    def _cpp_texts(self) -> list[str | None]:
        if not self._cpp:
            return [None] * len(self._drafts)
        found = self._torch._C._profiler.symbolize_tracebacks([draft.cpp for draft in self._drafts])  # noqa: SLF001
        return ["\n".join(f["name"] for f in frames if f["name"].startswith(_CPP_NAMES)) for frames in found]


def _caller() -> FrameType | None:
    """Return the frame that asked for the operator: the first that is neither ours nor the dispatch mode's."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    while frame is not None and (frame.f_code.co_filename == __file__ or _is_dispatch(frame.f_code)):
        frame = frame.f_back
    return frame


def _is_dispatch(code: CodeType) -> bool:
    """Return whether this is the wrapper that PyTorch puts around a mode's method."""
    return code.co_name == "_fn" and code.co_filename.endswith("eval_frame.py")


def _to_op(number: int, draft: _Draft, compiled: set[int], cpp: list[str | None]) -> Op:
    return Op(
        id=number,
        name=draft.name,
        overload=draft.overload,
        arguments=draft.arguments,
        returns=draft.returns,
        inputs=draft.inputs,
        outputs=draft.outputs,
        writes=draft.writes,
        frame=draft.frame,
        module=draft.place[0],
        module_type=draft.place[1],
        phase=draft.phase,
        forward=draft.forward,
        thread=draft.thread,
        device=draft.device,
        stream=draft.stream,
        region=draft.region,
        grad=draft.grad,
        inference=draft.inference,
        autocast=draft.autocast,
        compiled=draft.frame in compiled,
        cpp=cpp[number],
    )


def _compiled_frames(frames: tuple[Frame, ...]) -> set[int]:
    """Return the frames that lie inside of a compiled function."""
    inside: set[int] = set()
    for number, frame in enumerate(frames):
        is_entry = frame.owner == "torch" and frame.function.startswith(_COMPILER_FUNCTIONS)
        if frame.parent in inside or is_entry:
            inside.add(number)
    return inside


def _make_mode(recorder: _Recorder) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Capture(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
            return recorder.dispatch(func, types, args, kwargs or {})

    return Capture()


@contextmanager
def _eagerly(torch: Any) -> Iterator[None]:
    """Run compiled functions as they are written, for as long as it lasts."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None:
        yield  # older versions do that under a dispatch mode by themselves
        return
    with set_stance("force_eager"):
        yield


@contextmanager
def _without_warning_of_hooks(holdings: Holdings) -> Iterator[None]:
    """Keep PyTorch from warning the user of hooks that are ours. Other warnings pass."""
    modules = (module for model in holdings.models.values() for module in model.modules())
    if not any(is_compiled(module) for module in modules):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
        yield
