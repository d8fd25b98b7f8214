"""The captured pass: every operator that PyTorch dispatches, with the values it reads and produces.

A dispatch mode sees each ATen operator below autograd and autocast, in the thread that calls the step, in autograd's
and in those to which the step gives work. Each runs exactly as the program called it; tensors are signed when they are
produced and never kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.named_regions import current_region, join_regions
from joulediff.frameworks.torch.capture import dispatch_mode as mode
from joulediff.frameworks.torch.capture.arguments import Encoder, Facts, named
from joulediff.frameworks.torch.capture.dispatch_mode import Sieve, compiled_as_written, without_own_warnings
from joulediff.frameworks.torch.capture.hooks import (
    autocast_now,
    watch_autocast,
    watch_optimizers,
    watch_threads,
    watch_triton,
)
from joulediff.frameworks.torch.capture.order import TaskOrder, reorder, reorder_stretches
from joulediff.frameworks.torch.capture.signature import Signers, sign_now
from joulediff.frameworks.torch.capture.threads import STEP, Key, Task, Tasks
from joulediff.frameworks.torch.capture.values import Name, Values
from joulediff.frameworks.torch.graphs import rerun, watch
from joulediff.frameworks.torch.graphs.rerun import GraphRuns
from joulediff.frameworks.torch.models import Holdings, ModulePaths, clean_name, find_holdings, join_names
from joulediff.frameworks.torch.operators import OPERATORS
from joulediff.frameworks.torch.switches.spans import Flags, Reading
from joulediff.frameworks.torch.tensor_tree import named_tensors
from joulediff.frameworks.torch.trace.traced import GraphReplay
from joulediff.model.run import Frame, Op, Phase, Value, ValueKind
from joulediff.model.signature import Signature
from joulediff.pysource.call_path import CallPaths
from joulediff.pysource.programs import Step

if TYPE_CHECKING:
    import torch


# Operators from one report of progress to the next: one takes 28 µs or more, and a report 30 µs.
REPORTED_OPS = 256
# Checked for every operator, so by name and not by folder.
_OWN_FILES = (__file__, mode.__file__, rerun.__file__, watch.__file__)
_DISPATCH_FILES = ("_dynamo/eval_frame.py", "torch/_compile.py", "_python_dispatch.py")
_MODULE_FILE = os.path.join("torch", "nn", "modules", "module.py")  # noqa: PTH118 - the end of a path
_MODULE_CALLS = ("_wrapped_call_impl", "_call_impl", "inner")
_THREAD_CALLS = ("_bootstrap_inner", "run")
# The operator that `torch.tensor` dispatches: its result is a constant of the program.
_CONSTANT = "aten::lift_fresh"


@dataclass(frozen=True, slots=True)
class Captured:
    """The record of one captured step. `step_s`: its time under capture."""

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    signatures: tuple[Signature, ...]
    frames: tuple[Frame, ...]
    outputs: tuple[tuple[str, int], ...]
    """The tensors that the step returned: names and values."""
    compiled_modules: tuple[str, ...]
    changed: tuple[str | None, ...]
    """Names of tensors from before the step that the step changed."""
    files: Mapping[str, str]
    """The real path of each file of the frames."""
    addresses: tuple[int, ...]
    """The address of each storage."""
    flags: tuple[tuple[int, int, Reading], ...]
    """The tracked flags, by stretches of operators."""
    tasks: tuple[Key, ...]
    """The task that each `Op.thread` stands for."""
    graph_replays: tuple[GraphReplay, ...]
    """The operators of CUDA graphs that the step replayed, in order."""
    step_s: float


class _Origin(NamedTuple):
    """Where a task was started: its operators belong there."""

    frame: int | None
    module: str | None
    module_type: str | None
    region: str | None


_NOWHERE = _Origin(None, None, None, None)


def capture_step(
    step: Step,
    *,
    holdings: Holdings | None = None,
    begin: Callable[[], None] | None = None,
    root: Path | None = None,
    cpp: bool = False,
    report: Callable[[int], None] | None = None,
) -> Captured:
    """Run `step` once and return every operator of it, with signatures.

    `holdings` are its models and tensors by name, if they cannot be found from `step` itself. `begin` runs just before
    it (to seed random numbers); the user's files are named relative to `root`; `cpp` adds C++ frames. `report` is told
    the number of operators so far. The step's exceptions pass through, and no hook stays attached.
    """
    recorder = _Recorder(holdings or find_holdings(step), root=root, cpp=cpp, report=report)
    with recorder.attached():
        if begin is not None:
            begin()
        start_s = time.perf_counter()
        output = recorder.call(step)
        recorder.wait()
        step_s = time.perf_counter() - start_s
    return recorder.finish(output, step_s)


class _Recorder:
    def __init__(
        self, holdings: Holdings, *, root: Path | None, cpp: bool, report: Callable[[int], None] | None
    ) -> None:
        import torch

        self._report = report
        self._torch = torch
        self._holdings = holdings
        self._signers = Signers()
        self._values = Values(self._signers)
        self._paths = CallPaths(
            _Recorder.call.__code__,
            others=[Task.run.__code__],
            root=root,
            hidden=_is_framework_call,
            hints=source_hints(),
        )
        self._encoder = Encoder()
        self._flags = Flags()
        self._ops: list[Op] = []
        self._tracebacks: list[object] = []
        self._order = TaskOrder()
        self._tasks: Tasks | None = None
        self._is_open = True
        self._by_sequence: dict[int, dict[Key, int]] = {}
        self._streams: dict[int, int] = {}
        self._devices: dict[Any, str] = {}
        self._autocast: dict[int, str | None] = {}
        self._sieve = Sieve(self.take)
        self._graphs = GraphRuns(self._sieve, lambda: len(self._ops))
        self._lock = threading.RLock()
        self._cpp = cpp
        self._modules: ModulePaths | None = None
        self._sequence_number = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)  # noqa: SLF001
        self._autograd_node = getattr(torch._C, "_current_autograd_node", lambda: None)  # noqa: SLF001
        self._first_sequence: dict[Key, int] = {}

    def call(self, step: Step) -> object:
        """Call the step. Call paths end here."""
        return step()

    @contextmanager
    def attached(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._modules = ModulePaths(self._holdings.models, met=self._name_model)
            stack.callback(self._modules.close)
            for name, tensor in self._holdings.tensors.items():
                self._name("input", name, tensor)
            stack.enter_context(watch_optimizers(self._name_state))
            stack.enter_context(watch_autocast(self._note_autocast))
            stack.enter_context(watch_triton(self._run_triton))
            stack.enter_context(without_own_warnings())
            stack.enter_context(compiled_as_written())
            stack.enter_context(self._graphs.attached())
            stack.enter_context(self._sieve.mode)
            self._tasks = stack.enter_context(watch_threads(self._sieve, note=self._note_start, begin=self._begin_task))
            self._first_sequence[STEP] = self._sequence_number()
            yield
            with self._lock:
                self._is_open = False

    def wait(self) -> None:
        """Wait for the devices, so that the time of the step is whole."""
        if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def take(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Run one operator and record it."""
        with self._lock:
            text, tensors = self._encoder.arguments(args, kwargs)
            read = self._values.see if facts.is_view else self._values.read
            inputs = tuple([read(tensor) for tensor in tensors])
            changed = facts.changed(args, kwargs) if facts.may_change else ()
            self._values.before_write(changed)
        output = func(*args, **kwargs)
        with self._lock:
            self._note(facts, text, tensors, inputs, changed, output, _caller())
        return output

    def _note(
        self,
        facts: Facts,
        text: str,
        tensors: list[Any],
        inputs: tuple[int, ...],
        changed: Sequence[Any],
        output: object,
        frame: FrameType | None,
    ) -> None:
        if not self._is_open:
            return  # in a thread that outlives the step
        torch, number, me = self._torch, len(self._ops), threading.get_ident()
        if self._report is not None and number % REPORTED_OPS == 0:
            self._report(number)
        assert self._tasks is not None
        task = self._tasks.here()
        origin = task.origin or _NOWHERE
        if facts.is_blank:
            self._values.leave_blank(number)
        writes = self._values.write(changed, number) if changed else ()
        returns, made = self._encoder.returns(output)
        outputs = tuple([self._values.make(tensor, number) for tensor in made])
        phase, forward = self._phase(number, task.key)
        device, stream = self._where(made, tensors)
        self._order.note(task.key)
        self._flags.note(number, main=task.key == STEP)
        module, module_type, frame_index = self._place(frame, me, origin)
        if self._graphs.module is not None:
            assert self._modules is not None
            module, module_type = self._modules.place_of(self._graphs.module)
        if self._cpp:
            self._tracebacks.append(torch._C._profiler.gather_traceback(False, False, True))  # noqa: SLF001
        self._ops.append(
            Op(
                id=number,
                name=facts.name,
                overload=facts.overload,
                arguments=text,
                returns=returns,
                inputs=inputs,
                outputs=outputs,
                writes=writes,
                frame=frame_index,
                module=module,
                module_type=module_type,
                phase=phase,
                forward=forward,
                thread=0,  # known when all tasks are
                device=device,
                stream=stream,
                region=join_regions(origin.region, current_region()),
                grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(),
                autocast=self._autocast.get(me),
                compiled=False,
            )
        )

    def _begin_task(self, task: Task) -> None:
        """Note what belongs to the thread that now runs a task."""
        with self._lock:
            self._first_sequence.setdefault(task.key, self._sequence_number())
            self._note_autocast(autocast_now(self._torch))

    def _note_start(self, task: Task, by: Task, frame: FrameType) -> _Origin | None:
        with self._lock:
            if not self._is_open:
                return None
            self._order.start(task.key, by.key)
            origin = by.origin or _NOWHERE
            module, module_type, path = self._place(frame, threading.get_ident(), origin)
            return _Origin(path, module, module_type, join_regions(origin.region, current_region()))

    def _place(self, frame: FrameType | None, me: int, origin: _Origin) -> tuple[str | None, str | None, int | None]:
        """Return the module that a thread is in, with its type, and the call path to a frame of the thread."""
        assert self._modules is not None
        module, module_type = self._modules.here(me)
        if module is None:
            module, module_type = origin.module, origin.module_type
        return module, module_type, self._paths.here(frame, self._modules.base(me), after=origin.frame)

    def _phase(self, number: int, task: Key) -> tuple[Phase, int | None]:
        # Autograd numbers an operator just before it runs; the first one to show a number is its owner. Each thread
        # counts for itself.
        sequence = self._sequence_number()
        if sequence > self._first_sequence.get(task, self._first_sequence.get(STEP, 0)):
            self._by_sequence.setdefault(sequence - 1, {}).setdefault(task, number)
        node = self._autograd_node()
        if node is None:
            return "forward", None
        return "backward", self._forward_of(node, task)

    def _forward_of(self, node: Any, task: Key) -> int | None:
        """Return the operator that a backward function belongs to; of several threads' the one with its name."""
        found = self._by_sequence.get(node._sequence_nr(), {})  # noqa: SLF001
        if len(found) <= 1:
            return next(iter(found.values()), None)
        name = _plain_name(node.name().partition("Backward")[0])
        named = {key: op for key, op in found.items() if _plain_name(self._ops[op].name.partition("::")[2]) == name}
        return named.get(task, next(iter(named.values())) if len(named) == 1 else None)

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

    def _run_triton(
        self, name: str, run: Callable[[], object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        """Run a Triton kernel that the program launches itself, and record it as an operator.

        Its writes are not declared, so its tensors are signed before and after. An uninitialised tensor counts as
        written.
        """
        me = threading.get_ident()
        if me in self._sieve.inside:
            return run()
        self._sieve.inside.add(me)
        try:
            with self._lock:
                text, tensors = self._encoder.arguments(args, kwargs)
                inputs = tuple(self._values.read(tensor) for tensor in tensors)
                self._values.before_write(tensors)
            before = sign_now(tensors)
            output = run()
            pairs = list(zip(tensors, inputs, before, sign_now(tensors), strict=True))
            with self._lock:
                # As text, because NaN equals itself there.
                changed = [t for t, value, old, new in pairs if self._values.is_blank(value) or repr(new) != repr(old)]
                self._note(named(f"triton::{name}"), text, tensors, inputs, changed, None, _caller())
        finally:
            self._sieve.inside.discard(me)
        return output

    def _name_state(self, optimizer: Any) -> None:
        for parameter, state in optimizer.state.items():
            if isinstance(parameter, self._torch.Tensor) and isinstance(state, Mapping):
                of = self._values.name_of(parameter) or "?"
                for key, tensor in state.items():
                    self._name("input", f"{type(optimizer).__name__}.{key}.{of}", tensor)

    def _note_autocast(self, state: str | None) -> None:
        self._autocast[threading.get_ident()] = state

    def _name_model(self, root: str, model: torch.nn.Module) -> None:
        for path, tensor in model.named_parameters(remove_duplicate=False):
            name = join_names(root, clean_name(path))
            self._name("parameter", name, tensor)
            self._name("input", f"{name}.grad", tensor.grad if tensor.is_leaf else None)
        for path, tensor in model.named_buffers(remove_duplicate=False):
            self._name("buffer", join_names(root, clean_name(path)), tensor)

    def _name(self, kind: ValueKind, name: str, thing: object) -> None:
        with self._lock:
            for text, tensor in named_tensors(thing, name):
                if not self._torch.nn.parameter.is_lazy(tensor):
                    self._values.name(tensor, Name(kind, text))

    def _name_outputs(self, output: object) -> tuple[tuple[str, int], ...]:
        found = []
        for name, tensor in named_tensors(output):
            value = self._values.read(tensor)
            self._values.rename(value, name)
            found.append((name, value))
        return tuple(found)

    def finish(self, output: object, step_s: float) -> Captured:
        """Name the tensors that the step returned, sign the remaining ones, and return the record."""
        with self._torch.no_grad():
            outputs = self._name_outputs(output)
            values = self._values.finish()
        frames = tuple(self._paths.frames)
        constants = [value for op in self._ops if op.name == _CONSTANT for value in op.inputs]
        constants += [value for op in self._graphs.remade for value in self._ops[op].writes]
        changed = tuple(None if name is None else name.text for name in self._values.changed(fresh=constants))
        captured = Captured(
            ops=complete_ops(self._ops, frames, self._tracebacks),
            values=values,
            signatures=tuple(self._signers.finish()),
            frames=frames,
            outputs=outputs,
            compiled_modules=tuple(self._modules.compiled) if self._modules is not None else (),
            changed=changed,
            files=self._paths.files,
            addresses=self._values.addresses(),
            flags=self._flags.finish(len(self._ops)),
            tasks=(),
            graph_replays=tuple(self._graphs.replays),
            step_s=step_s,
        )
        return _in_task_order(captured, self._order)


def _in_task_order(found: Captured, order: TaskOrder) -> Captured:
    """Return a record with its operators in the order of their tasks, whose numbers are those of its threads."""
    keys = order.keys()
    places = order.order() if len(set(keys)) > 1 else []
    moved = reorder(found.ops, found.values, places) if places else None
    if moved is not None:
        keys = [keys[op] for op in places]
        new = {op: at for at, op in enumerate(places)}
        found = replace(
            found,
            ops=moved.ops,
            values=moved.values,
            outputs=tuple((name, moved.value_ids[value]) for name, value in found.outputs),
            flags=reorder_stretches(found.flags, places),
            graph_replays=tuple(replace(each, ops=tuple(new[op] for op in each.ops)) for each in found.graph_replays),
        )
    tasks = {key: at for at, key in enumerate(dict.fromkeys([STEP, *keys]))}
    ops = tuple(replace(op, thread=tasks[key]) if key else op for op, key in zip(found.ops, keys, strict=True))
    return replace(found, ops=ops, tasks=tuple(tasks))


def _caller() -> FrameType | None:
    """Return the frame that called the operator: the first that is neither ours nor the dispatch mode's."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    while frame is not None and (frame.f_code.co_filename in _OWN_FILES or _is_dispatch(frame.f_code)):
        frame = frame.f_back
    return frame


def _is_framework_call(code: CodeType) -> bool:
    """Return whether this is how a module calls its `forward`, or a thread its function.

    A module has other frames with our hooks than without.
    """
    if code.co_name in _MODULE_CALLS:
        return code.co_filename.endswith(_MODULE_FILE)
    return code.co_name in _THREAD_CALLS and code.co_filename == threading.__file__


def _plain_name(name: str) -> str:
    """Return the name that an operator and its backward function have in common."""
    return name.replace("_", "").lower()


def _is_dispatch(code: CodeType) -> bool:
    """Return whether this is a wrapper that PyTorch puts around a mode's method."""
    return code.co_filename.endswith(_DISPATCH_FILES) and code.co_name in ("_fn", "inner", "__torch_dispatch__")


# C++ frames that are recorded; the others belong to the recording itself.
_CPP_NAMES = ("at::", "c10::impl", "torch::autograd", "torch::jit", "torch::nn")
# The functions that torch.compile puts around the program's own, and the files of optimizers.
_COMPILER_FUNCTIONS = ("_TorchDynamoContext.", "OptimizedModule.", "compile_wrapper")
_OPTIMIZER_FILES = f"torch{os.sep}optim{os.sep}"
# The function that calls autograd's engine.
_BACKWARD_CALL = OPERATORS.engine_call


def complete_ops(ops: Sequence[Op], frames: Sequence[Frame], tracebacks: Sequence[object]) -> tuple[Op, ...]:
    """Return the operators with the facts that follow from their call paths.

    `tracebacks` are the C++ frames of all operators, or empty. A backward operator gets the place of its forward
    operator. Autograd computes gradients from C++: Python code with gradients on, inside of it, is a recomputed forward
    pass.
    """
    compiled = _inside(frames, lambda f: f.owner == "torch" and f.function.startswith(_COMPILER_FUNCTIONS))
    optimizer = _inside(frames, lambda f: f.owner == "torch" and f.file.startswith(_OPTIMIZER_FILES))
    texts = _cpp_texts(tracebacks) if tracebacks else [None] * len(ops)
    found: list[Op] = []
    for op, text in zip(ops, texts, strict=True):
        phase, forward, module, module_type = op.phase, op.forward, op.module, op.module_type
        is_compiled = op.frame in compiled
        if phase == "forward" and op.frame in optimizer and module is None:
            phase = "optimizer"  # in a module it is the closure that an optimizer calls
        if op.grad and op.frame is not None and frames[op.frame].function != _BACKWARD_CALL:
            forward = None
        if forward is not None and forward != op.id:
            is_compiled |= found[forward].compiled
            if module is None:
                module, module_type = found[forward].module, found[forward].module_type
        found.append(
            replace(
                op,
                phase=phase,
                forward=forward,
                module=module,
                module_type=module_type,
                compiled=is_compiled,
                cpp=text,
            )
        )
    return tuple(found)


def _inside(frames: Sequence[Frame], is_entry: Callable[[Frame], bool]) -> set[int]:
    """Return the frames that are such an entry, or that are inside one."""
    inside: set[int] = set()
    for number, frame in enumerate(frames):
        if frame.parent in inside or is_entry(frame):
            inside.add(number)
    return inside


def _cpp_texts(tracebacks: Sequence[object]) -> list[str | None]:
    import torch

    found: list[Any] = torch._C._profiler.symbolize_tracebacks(tracebacks)  # noqa: SLF001
    return ["\n".join(f["name"] for f in frames if f["name"].startswith(_CPP_NAMES)) for frames in found]
