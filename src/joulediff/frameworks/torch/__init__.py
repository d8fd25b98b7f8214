"""PyTorch. Nothing here imports torch unless the program has imported it itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from joulediff.frameworks.framework import Framework, Switches
from joulediff.frameworks.references import Reference
from joulediff.frameworks.torch import source_hints
from joulediff.frameworks.torch.array_sizes import ARRAY_SIZES
from joulediff.frameworks.torch.operators import OPERATORS
from joulediff.frameworks.torch.switches import table
from joulediff.frameworks.torch.switches.table import acts_on, group_aliases
from joulediff.model.run import Setting
from joulediff.pysource.programs import Step

if TYPE_CHECKING:
    from joulediff.frameworks.model_calls import ModelCalls
    from joulediff.frameworks.recorder import Recorder
    from joulediff.frameworks.sync import Sync


def _advice(key: str, where: str) -> str | None:
    if key == "torch.is_grad_enabled":
        return f"Run the step under torch.no_grad() or torch.inference_mode(){where}: the step does not use gradients."
    return None


def _watch() -> None:
    from joulediff.frameworks.torch.graphs.watch import watch_graphs

    watch_graphs()


def _read_plain_code(plain_code: Callable[[CodeType], CodeType]) -> Callable[[], None]:
    from joulediff.frameworks.torch.compiled_source import read_plain_code

    return read_plain_code(plain_code)


def _open_recorder(step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> Recorder:
    from joulediff.frameworks.torch.recorder import TorchRecorder

    return TorchRecorder(step, names=names, root=root, source=source, cpp=cpp)


def _open_sync() -> Sync | None:
    from joulediff.frameworks.torch.sync import open_torch_sync

    return open_torch_sync()


def _count_model_calls() -> ModelCalls:
    from joulediff.frameworks.torch.model_calls import ModuleCalls

    return ModuleCalls()


def _hold_counters() -> Callable[[], None]:
    from joulediff.frameworks.torch.counters import hold_counters

    return hold_counters()


def _fixed_step(step: Step, build: Callable[[], Step], fix: Mapping[str, Setting]) -> Step:
    from joulediff.frameworks.torch.trials.fix import fixed_step

    return fixed_step(step, build, fix)


def _read_settings(found: dict[str, Setting]) -> None:
    from joulediff.frameworks.torch.switches.read import put_torch

    put_torch(found)


def _wait_for_all() -> None:
    from joulediff.frameworks.torch.sync import wait_for_all

    wait_for_all()


def _references_of(thing: object) -> Iterable[Reference] | None:
    from joulediff.frameworks.torch.options import references_of

    return references_of(thing)


def _read_constant(text: str) -> object | None:
    from joulediff.frameworks.torch.options import read_constant

    return read_constant(text)


FRAMEWORK = Framework(
    name="torch",
    operators=OPERATORS,
    switches=Switches(
        prefix=table.PREFIX,
        facts=table.FACTS,
        modes=table.MODES,
        getters={f"{table.PREFIX}{table.BY_NAME[name].getter}": name for name in table.MODES},
        known_as={each.name: each.known_as for each in table.SWITCHES if each.known_as is not None},
        gradients=table.GRADIENTS,
        group_aliases=group_aliases,
        advice=_advice,
        acts_on=acts_on,
    ),
    libraries=("torch", "torchvision", "functorch", "triton"),
    apis={"torch": ("torch",)},
    api_names={
        "torch.TensorBase": "torch.Tensor",
        "torch._C.TensorBase": "torch.Tensor",
        "torch._dynamo.eval_frame._TorchDynamoContext.__call__.compile_wrapper": "torch.compile.__call__",
        "torch._dynamo.eval_frame.OptimizedModule": "torch.compile",
        # A function of the program under `@torch.no_grad()`.
        "torch.utils._contextlib.context_decorator.decorate_context": "",
        "torch.utils._contextlib._wrap_generator.generator_context": "",
    },
    array_sizes=ARRAY_SIZES,
    packages={
        "pytorch-lightning": "pytorch_lightning",
        "torch": "torch",
        "torchao": "torchao",
        "torchaudio": "torchaudio",
        "torchvision": "torchvision",
        "triton": "triton",
    },
    variables=frozenset(
        """
        ATEN_CPU_CAPABILITY DISABLE_ADDMM_CUDA_LT PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF
        """.split()  # noqa: SIM905 - read as words
    ),
    variable_prefixes=("PYTORCH_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
    generated=source_hints.GENERATED,
    describe_value=source_hints.describe_value,
    is_predicate=source_hints.is_predicate,
    watch=_watch,
    read_plain_code=_read_plain_code,
    open_recorder=_open_recorder,
    open_sync=_open_sync,
    wait_for_all=_wait_for_all,
    training_calls=frozenset({"backward"}),
    count_model_calls=_count_model_calls,
    hold_counters=_hold_counters,
    fixed_step=_fixed_step,
    read_settings=_read_settings,
    references_of=_references_of,
    read_constant=_read_constant,
)
