"""The recorder of PyTorch programs: the traced and the captured pass, joined and compared.

The two passes run the step from the same state. Their operators are joined by order and their outputs compared; a
note of the run reports a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.jobs import TrialRunner
from joulediff.frameworks.recorder import Replayer
from joulediff.frameworks.settings import collect_settings
from joulediff.frameworks.state_leaves import fitting_leaves
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.capture.signature import sign_now
from joulediff.frameworks.torch.capture.threads import Key
from joulediff.frameworks.torch.models import find_holdings
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.frameworks.torch.source_hints import SETTERS
from joulediff.frameworks.torch.state import State, keep_state, may_be_first_step, seed, seeded
from joulediff.frameworks.torch.switches.change import changed
from joulediff.frameworks.torch.switches.spans import to_spans
from joulediff.frameworks.torch.tensor_tree import named_tensors
from joulediff.frameworks.torch.trace.generated_code import read_graphs
from joulediff.frameworks.torch.trace.join import Joined, join
from joulediff.frameworks.torch.trace.trace import trace_step
from joulediff.frameworks.torch.trace.traced import Traced
from joulediff.frameworks.torch.trials.trial_runner import TorchTrialRunner
from joulediff.model.place import Place
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run, Setting, is_view
from joulediff.model.signature import Signature, compare
from joulediff.pysource.call_path import read_sources
from joulediff.pysource.leaf_sites import find_leaf_places, find_number_places
from joulediff.pysource.programs import Step
from joulediff.pysource.setting_sites import find_places, own_files, read_source

Outputs = dict[str, Signature | None]

# Kernels that add in varying order give outputs that differ by rounding: half precision has three digits.
SAME_SHARE = 1e-3
# Lines with the size of a tensor are stored; smaller sizes are in too many lines for other reasons.
LEAST_SIZE = 8


class TorchRecorder:
    """The passes of one step. `names` is searched for models and tensors."""

    def __init__(self, step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> None:
        self.listener = ProgressListener()
        self._step = step
        self._names = names
        self._root = root
        self._source = source
        self._cpp = cpp
        self._traced: Traced | None = None
        self._outputs: Outputs | None = None
        self._addresses: tuple[int, ...] = ()
        self._tasks: tuple[Key, ...] = ()
        self._state: State | None = None

    @contextmanager
    def seeded(self, *, ran: bool) -> Iterator[Callable[[], None]]:
        with ExitStack() as stack:
            stack.enter_context(seeded())
            if not ran and may_be_first_step(self._names):
                seed()
                self._step()
            state = self._state = None if ran else stack.enter_context(keep_state(self._names))
            seed()

            def begin() -> None:
                if state is not None:
                    state.put_back()
                seed()

            yield begin

    def settings(self) -> dict[str, Setting]:
        return collect_settings(find_holdings(self._names).models)

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:
        kept: list[object] = []

        def step() -> None:
            kept.clear()
            kept.append(self._step())

        self._traced = trace_step(step, begin=begin, listener=self.listener)
        self._outputs = _sign_outputs(kept.pop())
        return _with_trace(run, self._traced, join(self._traced, ()))

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        begin()  # before the capture: restoring the state is no work of the step
        holdings = find_holdings(self._names)
        found = capture_step(
            self._step,
            holdings=holdings,
            begin=seed,
            root=self._root,
            cpp=self._cpp,
            report=partial(self._report_ops, len(run.kernels)),
        )
        self.listener.stage("reading the source of the operators")
        self._addresses, self._tasks = found.addresses, found.tasks
        spans, notes_on_spans = to_spans(found.flags, run.settings)
        own = own_files(found.frames, found.files, self._root, source_hints()) if self._source else {}
        read = cache(read_source)  # three searches look through the same files
        places = find_places(run.settings, own, SETTERS, read=read)
        leaf_places = find_leaf_places(run.state, own, SETTERS, read=read)
        sizes = {size for value in found.values if value.producer is None for size in value.shape if size >= LEAST_SIZE}
        all_places = (*places.values(), *leaf_places.values(), *find_number_places(sizes, own, read=read))
        files = {**found.files, **{shown: str(path) for shown, path in own.items()}}
        run = replace(
            run,
            ops=found.ops,
            values=found.values,
            signatures=found.signatures,
            frames=found.frames,
            sources=read_sources(found.frames, files, all_places) if self._source else (),
            set_places={name: _to_text(place) for name, place in places.items()},
            state_places=fitting_leaves({path: _to_text(place) for path, place in leaf_places.items()}),
            spans=spans,
        )
        left = _left_out(found, self._state)
        notes = [*_notes_on_state(found, left, self._state), *notes_on_spans]
        if self._outputs is not None and not left:
            notes += _compare_outputs(self._outputs, _outputs_of(run, found.outputs))
        if self._traced is not None:
            joined = join(
                self._traced,
                found.ops,
                compiled_modules=found.compiled_modules,
                graphs=read_graphs(),
                views=[op.id for op in found.ops if is_view(run, op.id)],
                replays=found.graph_replays,
                tasks=found.tasks,
            )
            run = replace(_with_trace(run, self._traced, joined), notes=(*run.notes, *joined.notes))
            self._traced = None  # it is not needed any more, and large for a long step
            notes += note_missing_kernels(run)
        if not run.ops and not run.kernels:
            notes.append("no PyTorch operator ran in the step: there is its energy and nothing to split it by")
        return replace(run, notes=(*run.notes, *notes))

    def _report_ops(self, kernels: int, done: int) -> None:
        """Report the operators recorded so far, as a share of the kernels in the trace: most operators have one."""
        self.listener.stage(f"{done} operators", min(1.0, done / kernels) if kernels else None)

    def replayer(self, run: Run, begin: Callable[[], None]) -> Replayer:
        return TorchReplayer(self._step, run, begin=begin, addresses=self._addresses, tasks=self._tasks)

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> TrialRunner:
        return TorchTrialRunner(self._step, run, names=self._names, begin=begin, root=self._root, tasks=self._tasks)

    def changed(self, settings: Mapping[str, Setting]) -> AbstractContextManager[None]:
        return changed(settings)


def _to_text(place: Place) -> str:
    return f"{place.file}:{place.line}:{place.function}"


def _with_trace(run: Run, traced: Traced, joined: Joined) -> Run:
    return replace(run, traced_s=traced.step_s, kernels=joined.kernels, waits=joined.waits)


def note_missing_kernels(run: Run) -> list[str]:
    """Return a note if operators computed on a GPU and the trace has no kernel of it."""
    working = [op.device for op in run.ops if any(run.values[at].producer == op.id for at in (*op.outputs, *op.writes))]
    devices = sorted({device for device in working if device.startswith("cuda")})
    if not devices or any(kernel.device in devices for kernel in run.kernels):
        return []
    return [
        f"the profiler recorded no kernel of {' or '.join(devices)}, so its operators have no joules: "
        "end other profilers, and see whether CUPTI is installed and allowed for this user"
    ]


def _sign_outputs(output: object) -> Outputs:
    tensors = dict(named_tensors(output))
    return dict(zip(tensors, sign_now([*tensors.values()]), strict=True))


def _outputs_of(run: Run, outputs: Sequence[tuple[str, int]]) -> Outputs:
    return {name: run.signature_of(value) for name, value in outputs}


def _compare_outputs(first: Outputs, second: Outputs) -> list[str]:
    """Return notes on outputs of two calls that differ although random numbers were seeded alike."""
    if first.keys() != second.keys():
        return ["the step returned other outputs in the traced call than in the captured one"]
    differing = [name for name in first if not _is_same(first[name], second[name])]
    if not differing:
        return []
    return [
        f"{_list(differing)} changed from call to call although random numbers were seeded alike: "
        "the step keeps other state, or uses another random generator"
    ]


def _is_same(a: Signature | None, b: Signature | None) -> bool:
    if a is None or b is None:
        return a is b
    return compare(a, b, tolerance=SAME_SHARE)


def _left_out(found: Captured, state: State | None) -> list[str | None]:
    """Return the names of the tensors that the step changed and that are not restored."""
    if state is None:
        return list(found.changed)
    named = {value.storage for value in found.values if value.name is not None}
    there = {value.storage for value in found.values if value.producer is None} - named
    written = {found.values[value].storage for op in found.ops for value in op.writes} & there
    return state.left_out(found.changed, {found.addresses[storage] for storage in written})


def _notes_on_state(found: Captured, left: Sequence[str | None], state: State | None) -> list[str]:
    if left:
        why = f" ({state.refusal})" if state is not None and state.refusal else ""
        return [
            f"the step changes its initial state ({_list_all(left)}), which is not restored{why}: each call continues "
            "from the last one, so the outputs of the passes are not compared"
        ]
    if not found.changed:
        return []
    steps = any(op.phase == "optimizer" for op in found.ops)  # with gradient accumulation not every call has one
    makers = state.makers if state is not None and steps else ()
    first = f"; each pass is a first step of {_list(makers)}, which creates its state" if makers else ""
    names = _list_all(found.changed)
    return [f"the step changes its initial state ({names}): it is restored before each instrumented pass{first}"]


def _list_all(changed: Sequence[str | None]) -> str:
    names = [name for name in changed if name is not None]
    unnamed = len(changed) - len(names)
    return _list(names) + (" and " if names and unnamed else "") + (_count(unnamed, "tensor") if unnamed else "")


def _list(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
