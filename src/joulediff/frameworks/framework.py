"""The description of a framework, and the list of the frameworks there are.

A package in this folder with an attribute `FRAMEWORK` is one framework; `register` adds others. A description is data
and functions that import the framework when they are called: reading a recording never needs the framework itself.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal

from joulediff.frameworks.references import Reference
from joulediff.model.run import Frame, Op, Run, Setting
from joulediff.pysource.call_path import STANDARD_LIBRARY
from joulediff.pysource.framework_hints import FrameworkHints
from joulediff.pysource.programs import Step

if TYPE_CHECKING:
    from joulediff.frameworks.model_calls import ModelCalls
    from joulediff.frameworks.recorder import Recorder
    from joulediff.frameworks.sync import Sync

OpenRecorder = Callable[..., "Recorder"]
"""Called with the step, and `names`, `root`, `source` and `cpp` of `frameworks.recorder.open_recorder`."""
FixedStep = Callable[[Step, Callable[[], Step], Mapping[str, Setting]], Step]
ModeField = Literal["grad", "inference"]


def _group_each(names: Iterable[str]) -> list[tuple[str, ...]]:
    return [(name,) for name in names]


def _no_advice(_key: str, _where: str) -> str | None:
    return None


def _acts_on_all(_setting: str, _ops: Sequence[Op]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class SchemaArgument:
    """One argument in the declaration of an operator."""

    name: str
    default: Setting = None
    """Its value where a call leaves it out."""


@dataclass(frozen=True, kw_only=True)
class Operators:
    """Names of a framework's operators, and of the calls that run them. Names in full are `namespace::operator`."""

    namespaces: tuple[str, ...] = ()
    """Namespaces of the framework's own operators."""
    unnamed: tuple[str, ...] = ()
    """Namespaces that reports leave out: `addmm` for `aten::addmm`."""
    reads: frozenset[str] = frozenset()
    """Operators, in full, that transfer a number to the host, which waits for it."""
    copies: frozenset[str] = frozenset()
    """Operators, in full, that only copy a tensor to another layout."""
    products: frozenset[str] = frozenset()
    """Operators, in full, that multiply the last two of their inputs as matrices."""
    copy_calls: tuple[str, ...] = ()
    """Functions in source code that run one of `copies`."""
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Functions in source code that run an operator (without its namespace) of another name, the likeliest first."""
    engine_call: str | None = None
    """The Python function below which the framework runs backward code."""
    detach_call: str | None = None
    """The function in source code that returns a tensor through which no gradients flow."""
    kernel_namespaces: tuple[str, ...] = ()
    """C++ namespaces that the names of most kernels begin with, so that reports leave them out."""
    convert_format: Callable[[str], str] | None = None
    """Returns the code that converts a tensor to a memory format: `contiguous` or `channels_last`."""
    read_schema: Callable[[str, str], tuple[SchemaArgument, ...] | None] | None = None
    """Returns the arguments of an operator, given its name in full and its overload; None if they are not known."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """A framework's settings that a program can change."""

    prefix: str
    """The prefix of all settings of the framework: `torch.`."""
    facts: tuple[str, ...] = ()
    """Prefixes of settings that are recorded and cannot be chosen, such as versions."""
    modes: Mapping[str, ModeField] = field(default_factory=dict)
    """Settings that each operator has a field for; they decide which operators run, not how an operator runs."""
    getters: Mapping[str, str] = field(default_factory=dict)
    """Functions in source code that return a setting, and the setting."""
    known_as: Mapping[str, str] = field(default_factory=dict)
    """Settings whose recorded name is no name of the framework, and the function that sets each."""
    gradients: str | None = None
    """The setting that turns gradients on; one of `modes`."""
    group_aliases: Callable[[Iterable[str]], list[tuple[str, ...]]] = _group_each
    """Returns setting names in groups of one switch each, the best-known name first."""
    advice: Callable[[str, str], str | None] = _no_advice
    """Returns the sentence for a key that needs its own; takes the key and the text of a location."""
    acts_on: Callable[[str, Sequence[Op]], bool] = _acts_on_all
    """Returns False if a setting or a variable of the environment (`env.NAME`) certainly acts on none of operators."""


NO_OPERATORS = Operators()


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One framework. Its functions import it, and are called only if the program has imported it before."""

    name: str
    """The module that a program imports, as in `sys.modules`."""
    operators: Operators = NO_OPERATORS
    switches: Switches | None = None
    libraries: tuple[str, ...] = ()
    """Packages whose files are the framework's code, not the code that chose an operator."""
    apis: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Libraries whose calls can be measured, by the names that programs import, each with its packages."""
    api_names: Mapping[str, str] = field(default_factory=dict)
    """Better names for modules, classes and functions whose name in the code is no public one.

    No name: what only calls a function of the program, in some context, is no call of the library."""
    array_sizes: Mapping[str, Callable[[Any], int | None]] = field(default_factory=dict)
    """Classes of arrays and data sets, by module and name, each with a function that returns the bytes of an object."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Distributions whose versions are recorded, each with a module that a program using it has imported."""
    variables: frozenset[str] = frozenset()
    """Variables of the environment that are recorded."""
    variable_prefixes: tuple[str, ...] = ()
    """Prefixes of variables that are recorded: for families with hundreds, more with every release."""
    generated: tuple[str, ...] = ()
    """Prefixes of the names that generated code has in place of a file."""
    describe_value: Callable[[Any], str | None] | None = None
    """As in `FrameworkHints`."""
    is_predicate: Callable[[str, Any], bool] | None = None
    """As in `FrameworkHints`."""
    watch: Callable[[], None] | None = None
    """Called before the program is loaded, to follow what it does while it is built; does not import the framework."""
    read_plain_code: Callable[[Callable[[CodeType], CodeType]], Callable[[], None]] | None = None
    """Lets a compiler of the framework read, for the code of a function, the code that the argument returns for it.

    Returns a function that ends it; does not import the framework."""
    open_recorder: OpenRecorder | None = None
    open_sync: Callable[[], Sync | None] | None = None
    wait_for_all: Callable[[], None] | None = None
    """Waits for all work that the program has queued, on every device; quick if there is none."""
    training_calls: frozenset[str] = frozenset()
    """Functions and methods in source code that only a training step calls, by the last part of their names."""
    count_model_calls: Callable[[], ModelCalls] | None = None
    """Begins to count the calls of models."""
    hold_counters: Callable[[], Callable[[], None]] | None = None
    """Returns a function that puts back what counts the steps of a training now, such as its schedules."""
    fixed_step: FixedStep | None = None
    """Returns a step with settings changed; the second argument builds the program again."""
    read_settings: Callable[[dict[str, Setting]], None] | None = None
    """Adds the framework's settings to a mapping."""
    references_of: Callable[[object], Iterable[Reference] | None] | None = None
    """Returns the options and parts of a framework's object, nothing for a tensor; None for any other object."""
    read_constant: Callable[[str], object | None] | None = None
    """Returns a data type, device or layout by its recorded text; None if there is none."""

    @property
    def is_loaded(self) -> bool:
        """Return whether the program has imported the framework."""
        return self.name in sys.modules


_registered: list[Framework] = []


def register(framework: Framework) -> None:
    """Add a framework from outside this folder. It takes precedence over the frameworks in it."""
    _registered.insert(0, framework)
    _forget_known()


def unregister(framework: Framework) -> None:
    """Remove a framework that `register` added."""
    _registered.remove(framework)
    _forget_known()


def _forget_known() -> None:
    for derived in (_by_namespace, _engine_calls, library_packages):
        derived.cache_clear()


def frameworks() -> tuple[Framework, ...]:
    """Return every known framework."""
    return (*_registered, *_in_this_folder())


def loaded_frameworks() -> tuple[Framework, ...]:
    """Return the frameworks that the program has imported."""
    return tuple(framework for framework in frameworks() if framework.is_loaded)


def watch_program() -> None:
    """Let every framework follow a program from before it is loaded."""
    for framework in frameworks():
        if framework.watch is not None:
            framework.watch()


@cache
def _in_this_folder() -> tuple[Framework, ...]:
    package = __name__.rpartition(".")[0]
    folders = [each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]) if each.ispkg]
    modules = [importlib.import_module(f"{package}.{name}") for name in sorted(folders)]
    return tuple(module.FRAMEWORK for module in modules if hasattr(module, "FRAMEWORK"))


@cache
def _by_namespace() -> dict[str, Framework]:
    return {name: each for each in reversed(frameworks()) for name in each.operators.namespaces}


def framework_of(op_name: str) -> Framework | None:
    """Return the framework that an operator belongs to; None for an unknown namespace."""
    return _by_namespace().get(op_name.partition("::")[0])


def operators_of(op_name: str) -> Operators:
    """Return the operators of the framework that an operator belongs to; empty ones for an unknown namespace."""
    found = framework_of(op_name)
    return NO_OPERATORS if found is None else found.operators


def is_read(op_name: str) -> bool:
    """Return whether an operator transfers a number to the host."""
    return op_name in operators_of(op_name).reads


def is_copy(op_name: str) -> bool:
    """Return whether an operator only copies a tensor to another layout."""
    return op_name in operators_of(op_name).copies


def is_product(op_name: str) -> bool:
    """Return whether an operator multiplies matrices."""
    return op_name in operators_of(op_name).products


def is_copy_call(call: str) -> bool:
    """Return whether a function in source code only copies a tensor to another layout."""
    return any(call in each.operators.copy_calls for each in frameworks())


def short_name(op_name: str) -> str:
    """Return an operator's name as reports show it: `addmm` of `aten::addmm`, `nccl::all_reduce` as it is."""
    namespace, found, name = op_name.partition("::")
    return name if found and namespace in operators_of(op_name).unnamed else op_name


def schema_of(op_name: str, overload: str) -> tuple[SchemaArgument, ...] | None:
    """Return the arguments in the declaration of an operator, in order; None if they are not known here."""
    read = operators_of(op_name).read_schema
    return None if read is None else read(op_name, overload)


def kernel_namespaces() -> tuple[str, ...]:
    """Return the C++ namespaces that reports leave out of kernel names."""
    return tuple(name for each in frameworks() for name in each.operators.kernel_namespaces)


@cache
def library_packages() -> frozenset[str]:
    """Return the packages that hold code of a framework."""
    return frozenset(name for each in frameworks() for name in each.libraries)


def source_hints() -> FrameworkHints:
    """Return the facts about all frameworks that `pysource` needs."""
    known = frameworks()

    def describe_value(value: Any) -> str | None:
        texts = (each.describe_value(value) for each in known if each.describe_value is not None)
        return next((text for text in texts if text is not None), None)

    def is_predicate(name: str, function: Any) -> bool:
        return any(each.is_predicate(name, function) for each in known if each.is_predicate is not None)

    return FrameworkHints(
        packages=tuple(each.name for each in known),
        generated=tuple((begin, each.name) for each in known for begin in each.generated),
        describe_value=describe_value,
        is_predicate=is_predicate,
    )


def switches_of(setting: str) -> Switches | None:
    """Return the switches of the framework that a setting or a function belongs to; None for any other name."""
    known = (each.switches for each in frameworks() if each.switches is not None)
    return next((switches for switches in known if setting.startswith(switches.prefix)), None)


def can_act(setting: str, ops: Sequence[Op]) -> bool:
    """Return whether a setting may act on one of these operators; only what a framework is certain of is excluded."""
    known = (each.switches for each in frameworks() if each.switches is not None)
    return all(switches.acts_on(setting, ops) for switches in known)


def known_name(setting: str) -> str:
    """Return the name that readers know a setting by: the function that sets it, where its own is not public."""
    switches = switches_of(setting)
    return setting if switches is None else switches.known_as.get(setting, setting)


def setting_read_by(function: str) -> str | None:
    """Return the setting that a framework's function returns, or that is known by it; None for any other function."""
    switches = switches_of(function)
    if switches is None:
        return None
    known = {name: setting for setting, name in switches.known_as.items()}
    return switches.getters.get(function) or known.get(function)


def gradient_getter(run: Run) -> str | None:
    """Return the function that returns whether gradients are on, in the framework of a run's operators."""
    found = next((each for op in run.ops if (each := framework_of(op.name)) is not None), None)
    switches = None if found is None else found.switches
    if switches is None:
        return None
    return next((name for name, setting in switches.getters.items() if setting == switches.gradients), None)


def detaching_call(run: Run) -> str | None:
    """Return the function that keeps gradients from a tensor, in the framework of a run's operators."""
    return next((each for op in run.ops if (each := operators_of(op.name).detach_call) is not None), None)


def group_switches(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the settings of frameworks in groups of one switch each; names of no framework are left out."""
    wanted = list(names)
    groups: list[tuple[str, ...]] = []
    for framework in frameworks():
        if (switches := framework.switches) is not None:
            groups += switches.group_aliases(name for name in wanted if switches_of(name) is switches)
    return groups


@cache
def _engine_calls() -> frozenset[str]:
    calls = (each.operators.engine_call for each in frameworks())
    return frozenset(call for call in calls if call is not None)


def settings_at(run: Run, op: int) -> Mapping[str, Setting]:
    """Return the settings that held when an operator ran."""
    found = dict(run.settings)
    for span in run.spans:
        if span.first <= op <= span.last:
            found.update(span.settings)
    for framework in frameworks():
        modes = {} if framework.switches is None else framework.switches.modes
        found |= {name: getattr(run.ops[op], mode) for name, mode in modes.items() if name in found}
    return found


def place_of(run: Run, op: int) -> Frame | None:
    """Return the innermost line of the user's own code on the way to an operator, or of any code.

    A backward operator has the line of its forward operator, unless the user's own code ran it.
    """
    forward = run.ops[op].forward
    path = run.call_path(op if forward is None else forward) or run.call_path(op)
    own = [frame for frame in (*path, *backward_path(run, op)) if frame.owner is None]
    return (own or path or (None,))[-1]


def outer_path(run: Run, op: int) -> tuple[Frame, ...]:
    """Return the frames on the way to an operator outside of frameworks and the standard library, outermost first.

    A backward operator has those of its forward operator, and of a backward function written in Python.
    """
    forward = run.ops[op].forward
    path = run.call_path(op if forward is None else forward) or run.call_path(op)
    inside = {*library_packages(), STANDARD_LIBRARY}
    return tuple(frame for frame in (*path, *backward_path(run, op)) if frame.owner not in inside)


def backward_path(run: Run, op: int) -> tuple[Frame, ...]:
    """Return the frames of a backward written in Python that lead to an operator: those below the autograd engine.

    The engine calls them in the thread that called it or, on a GPU, in its own thread, whose path begins there.
    """
    if run.ops[op].forward is None:
        return ()
    path = run.call_path(op)
    calls = [i for i, frame in enumerate(path) if frame.function in _engine_calls()]
    if calls:
        return path[calls[-1] + 1 :]
    return path if run.ops[op].thread else ()
