"""The recorder of programs without a framework: it records what a step returns, and no operators.

The step is run twice from the same random state: an output that differs then is known to vary from call to call, and
is not compared with that of another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.generators import find_generators, host_seeded, seed_host
from joulediff.frameworks.jobs import Job, PreparedJob
from joulediff.frameworks.plain.output_tree import flatten
from joulediff.frameworks.plain.signatures import Signed, add_outputs, sign_columns
from joulediff.frameworks.recorder import Load, Recorder
from joulediff.frameworks.settings import collect_settings
from joulediff.frameworks.state_leaves import fitting_leaves
from joulediff.model.errors import JoulediffError
from joulediff.model.outputs import OUTPUT
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Op, Run, Setting
from joulediff.model.signature import compare
from joulediff.pysource.leaf_sites import find_leaf_places
from joulediff.pysource.programs import Step
from joulediff.pysource.setting_sites import own_files, read_source

NO_OPERATORS = "the program has no operators that joulediff records"
NO_OUTPUTS = "the step returns nothing, so its outputs cannot be compared"
# Two calls of one program add in the same order; threads of a library may not.
_SAME_SHARE = 1e-6
_MOST_NAMES = 3


class PlainRecorder:
    """The passes of one step without a framework. `names` is searched for random generators."""

    def __init__(self, step: Step, *, names: object, root: Path, source: bool) -> None:
        self._step = step
        self._names = names
        self._root = root
        self._source = source
        self.listener = ProgressListener()

    @contextmanager
    def seeded(self, *, ran: bool) -> Iterator[Callable[[], None]]:
        """As `Recorder.seeded`: the state of a program without a framework is that of its random generators."""
        generators = [] if ran else find_generators(self._names)
        states = [each.read() for each in generators]
        begun: list[object] = []

        def begin() -> None:
            if not begun:
                begun.extend(each.read() for each in generators)
            for each, state in zip(generators, states, strict=True):
                each.write(state)
            seed_host()

        with host_seeded():
            try:
                seed_host()
                yield begin
            finally:
                for each, state in zip(generators, begun, strict=False):
                    each.write(state)

    def settings(self) -> dict[str, Setting]:
        return collect_settings()

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:  # noqa: ARG002
        return run

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        """Return the run with the outputs of its step, and the lines that set its state."""
        outputs, varying = self._outputs(begin)
        values, signatures = add_outputs(run, outputs)
        run = replace(run, values=values, signatures=signatures, notes=(*run.notes, *_notes(outputs, varying)))
        if not self._source:
            return run
        own = own_files(run.frames, {}, self._root, source_hints())
        places = find_leaf_places(run.state, own, None, read=read_source)
        texts = {path: f"{place.file}:{place.line}:{place.function}" for path, place in places.items()}
        return replace(run, state_places=fitting_leaves(texts))

    def _outputs(self, begin: Callable[[], None]) -> tuple[dict[str, Signed], list[str]]:
        """Return the outputs, and the names of those that two calls from the same state do not share."""
        begin()
        first = sign_columns(flatten(self._step()))
        begin()
        second = sign_columns(flatten(self._step()))
        varying = [name for name in {**first, **second} if not _is_same(first.get(name), second.get(name))]
        kept = {
            name: replace(each, signature=None) if name in varying else each
            for name, each in {**second, **first}.items()
        }
        return kept, varying

    def replayer(self, run: Run, begin: Callable[[], None]) -> PlainReplayer:  # noqa: ARG002
        return PlainReplayer()

    def trial_runner(self, run: Run, begin: Callable[[], None]) -> PlainTrialRunner:  # noqa: ARG002
        return PlainTrialRunner()

    @contextmanager
    def changed(self, settings: Mapping[str, Setting]) -> Iterator[None]:
        """As `Recorder.changed`: there are no settings to change."""
        if settings:
            raise JoulediffError(f"{', '.join(settings)} cannot be changed: the program uses no framework")
        yield


def capture_step(
    recorder: Recorder, run: Run, begin: Callable[[], None], *, step: Step, names: object, root: Path, source: bool
) -> Run:
    """Return the run with its operators; if the step runs none, with its outputs, whatever they are made of.

    A program may have loaded a framework that its step does not use.
    """
    found = recorder.capture(run, begin)
    is_known = any(value.name is not None and value.name.startswith(OUTPUT) for value in found.values)
    if found.ops or is_known or isinstance(recorder, PlainRecorder):
        return found
    return PlainRecorder(step, names=names, root=root, source=source).capture(found, begin)


def _is_same(a: Signed | None, b: Signed | None) -> bool:
    if a is None or b is None or a.signature is None or b.signature is None:
        return a == b
    return compare(a.signature, b.signature, tolerance=_SAME_SHARE)


def _notes(outputs: Mapping[str, Signed], varying: Sequence[str]) -> Iterator[str]:
    if not outputs:
        yield NO_OUTPUTS
    unknown = [f"{name} ({each.dtype})" for name, each in outputs.items() if each.signature is None]
    unknown = [each for each in unknown if each.partition(" ")[0] not in varying]
    if unknown:
        yield f"{_listed(unknown)} cannot be compared with another program's"
    if varying:
        yield (
            f"{_listed(varying)} changed from call to call although random numbers were seeded alike: "
            "the step keeps other state, or returns times"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


class PlainReplayer:
    """Replays nothing."""

    addresses: Sequence[int] = ()

    def refusal(self, op: Op) -> str | None:  # noqa: ARG002
        return NO_OPERATORS

    def budget_bytes(self, device: str) -> int:  # noqa: ARG002
        return 0

    def collect(self, ops: Sequence[int]) -> None:
        pass

    def open_load(self, op: int, **_: object) -> Load:  # noqa: ARG002
        raise JoulediffError(NO_OPERATORS)

    def open_rest(self, device: str) -> Load | None:  # noqa: ARG002
        return None

    def is_alive(self, device: str) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        pass


class PlainTrialRunner:
    """Builds changed programs; there is no operator to run alone."""

    def take_other(self, run: Run) -> None:
        pass

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:  # noqa: ARG002
        raise JoulediffError(NO_OPERATORS)

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:  # noqa: ARG002
        raise JoulediffError(NO_OPERATORS)

    def import_tensors(self, path: Path) -> None:  # noqa: ARG002
        raise JoulediffError(NO_OPERATORS)

    def without_sync(self, step: Step, *, file: str, line: int) -> AbstractContextManager[Step]:  # noqa: ARG002
        raise JoulediffError(f"{file}:{line} has no wait that can be left out: the program waits for no device")

    def prepare_job(self, job: Job) -> PreparedJob:  # noqa: ARG002
        raise JoulediffError(NO_OPERATORS)

    def refuse_change(self) -> None:
        pass

    def build_again(self, build: Callable[[], Step], first: Mapping[str, Setting]) -> tuple[Step, dict[str, Setting]]:  # noqa: ARG002
        with host_seeded():
            return build(), {}
