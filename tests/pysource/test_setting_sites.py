"""The lines that set settings are found in a program's source, under any name that it imports a module by."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from joulediff.frameworks.torch.source_hints import SETTERS
from joulediff.model.place import Place
from joulediff.model.run import Frame, Setting
from joulediff.pysource.framework_hints import NO_HINTS
from joulediff.pysource.setting_sites import find_places, own_files

CUDA = "torch.backends.cuda"
TF32 = f"{CUDA}.matmul.allow_tf32"
SDP = {f"{CUDA}.{kind}_sdp_enabled": True for kind in ("flash", "mem_efficient", "math", "cudnn")}
SETTINGS: dict[str, Setting] = {
    **SDP,
    TF32: True,
    f"{CUDA}.matmul.fp32_precision": "tf32",
    "torch.backends.cudnn.allow_tf32": True,
    "torch.backends.cudnn.benchmark": True,
    "torch.backends.cudnn.deterministic": False,
    "torch.backends.cudnn.enabled": True,
    "torch.backends.mkldnn.enabled": False,
    "torch.autocast.cpu.enabled": False,
    "torch.autocast.cuda.enabled": False,
    "torch.default_dtype": "float64",
    "torch.deterministic.enabled": True,
    "torch.deterministic.fill_uninitialized_memory": False,
    "torch.float32_matmul_precision": "high",
    "torch.grad_enabled": True,
    "torch.inference_mode": False,
    "torch.num_threads": 4,
    "env.CUDA_LAUNCH_BLOCKING": "1",
    "model.model.config._attn_implementation": "eager",
    "model.model.config.activation_function": "gelu_new",
    "model.model.config.dtype": "float16",
    "model.model.config.use_cache": False,
    "model.model.dtype": "float16",
    "model.model.training": False,
}


def places(tmp_path: Path, text: str, settings: dict[str, Setting] = SETTINGS) -> dict[str, Place]:
    file = tmp_path / "program.py"
    file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return find_places(settings, {"program.py": file}, SETTERS)


# A line, and the settings it sets.
LINES = {
    "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True": {TF32},
    "import torch as th\nth.backends.cuda.matmul.allow_tf32 = True": {TF32},
    "import torch.backends.cuda\ntorch.backends.cuda.matmul.allow_tf32 = True": {TF32},
    "import torch.backends.cuda as c\nc.matmul.allow_tf32 = True": {TF32},
    "from torch import backends\nbackends.cuda.matmul.allow_tf32 = True": {TF32},
    "from torch.backends.cuda import matmul as m\nm.allow_tf32 = True": {TF32},
    "import torch; m = torch.backends.cuda.matmul\nm.allow_tf32 = True": {TF32},
    "from everything import *\ntorch.backends.cuda.matmul.allow_tf32 = True": {TF32},
    "from everything import *\ncudnn.benchmark = True": {"torch.backends.cudnn.benchmark"},
    "class X:\n def f(self): self.torch.backends.cudnn.benchmark = True": {"torch.backends.cudnn.benchmark"},
    "import torch\ntorch.backends.cudnn.benchmark, y = x": {"torch.backends.cudnn.benchmark"},
    "import torch\ntorch.set_float32_matmul_precision('high')": {"torch.float32_matmul_precision"},
    "from torch import set_num_threads as s\ns(4)": {"torch.num_threads"},
    "import torch\ntorch.set_default_dtype(torch.double)": {"torch.default_dtype"},
    "import torch\ntorch.use_deterministic_algorithms(True)": {"torch.deterministic.enabled"},
    "import torch\ntorch.utils.deterministic.fill_uninitialized_memory = False": {
        "torch.deterministic.fill_uninitialized_memory"
    },
    "import torch\ntorch.backends.cuda.enable_flash_sdp(False)": {f"{CUDA}.flash_sdp_enabled"},
    "from torch.nn.attention import sdpa_kernel, SDPBackend\nwith sdpa_kernel(SDPBackend.MATH): pass": {*SDP},
    "import torch\nwith torch.backends.cuda.sdp_kernel(enable_math=False): pass": {*SDP},
    "import torch\nwith torch.backends.cudnn.flags(benchmark=True): pass": {
        f"torch.backends.cudnn.{word}" for word in ("allow_tf32", "benchmark", "deterministic", "enabled")
    },
    "import torch\ntorch.backends.mkldnn.set_flags(_enabled=False)": {"torch.backends.mkldnn.enabled"},
    "import torch\nwith torch.no_grad(): pass": {"torch.grad_enabled"},
    "import torch\ntorch.set_grad_enabled(True)": {"torch.grad_enabled"},
    "import torch\nwith torch.inference_mode(): pass": {"torch.grad_enabled", "torch.inference_mode"},
    "import torch\nwith torch.autocast('cuda', dtype=torch.float16): pass": {"torch.autocast.cuda.enabled"},
    "import torch\nwith torch.autocast(kind): pass": {"torch.autocast.cuda.enabled", "torch.autocast.cpu.enabled"},
    "import torch\nwith torch.cuda.amp.autocast(): pass": {"torch.autocast.cuda.enabled"},
    "import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '1'": {"env.CUDA_LAUNCH_BLOCKING"},
    "from os import environ as e\ne['CUDA_LAUNCH_BLOCKING'] = '1'": {"env.CUDA_LAUNCH_BLOCKING"},
    "import os\nos.environ.setdefault('CUDA_LAUNCH_BLOCKING', '1')": {"env.CUDA_LAUNCH_BLOCKING"},
    "import os\nos.putenv('CUDA_LAUNCH_BLOCKING', '1')": {"env.CUDA_LAUNCH_BLOCKING"},
    "import os\nos.environ.update(CUDA_LAUNCH_BLOCKING='1')": {"env.CUDA_LAUNCH_BLOCKING"},
    "import os\nos.environ.update({'CUDA_LAUNCH_BLOCKING': '1'})": {"env.CUDA_LAUNCH_BLOCKING"},
    "import os\nos.environ['OTHER'] = '1'": set(),
    "#\nconfig = GPT2Config(activation_function='gelu_new')": {"model.model.config.activation_function"},
    "#\nconfig = GPT2Config(activation_function=chosen)": {"model.model.config.activation_function"},
    "#\nconfig.use_cache = False": {"model.model.config.use_cache"},
    "#\nmodel.config['use_cache'] = False": {"model.model.config.use_cache"},
    "#\nconfig._attn_implementation = 'eager'": {"model.model.config._attn_implementation"},
    "#\nm = AutoModel.from_pretrained(x, attn_implementation='eager')": {"model.model.config._attn_implementation"},
    "import torch\nm = AutoModel.from_pretrained(x, torch_dtype=torch.half)": {
        "model.model.config.dtype",
        "model.model.dtype",
    },
    "#\nsizes = {'activation_function': 'gelu_new'}": {"model.model.config.activation_function"},
    "#\nsizes = {'activation_function': anything}": set(),
    "#\nbuild(activation_function='relu')": set(),
    "import torch\ntorch.zeros(3, dtype=torch.float16)": set(),
    "#\nmodel = Model(config).cuda().half()": {"model.model.config.dtype", "model.model.dtype"},
    "import torch\nmodel.to('cuda', torch.float16)": {"model.model.config.dtype", "model.model.dtype"},
    "#\nmodel.eval()": {"model.model.training"},
    "#\nmodel.train()": set(),
    "#\nx = x.half()": set(),
    "import torch\ntorch.compile(x)": set(),
    "#\nprint(torch.backends.cudnn.benchmark)": set(),
}


@pytest.mark.parametrize("text", LINES)
def test_the_settings_of_a_line(tmp_path: Path, text: str) -> None:
    found = places(tmp_path, text)
    assert found.keys() == LINES[text]
    assert all((place.file, place.line) == ("program.py", 2) for place in found.values())


def test_a_place_says_file_line_function_and_text(tmp_path: Path) -> None:
    found = places(
        tmp_path,
        """
        import torch

        def build():
            def inner():
                torch.set_num_threads(4)  # all of them
            torch.backends.cudnn.benchmark = True

        @torch.no_grad()
        def step():
            pass
        """,
    )
    assert found == {
        "torch.num_threads": Place("program.py", 5, "inner", "torch.set_num_threads(4)  # all of them"),
        "torch.backends.cudnn.benchmark": Place("program.py", 6, "build", "torch.backends.cudnn.benchmark = True"),
        "torch.grad_enabled": Place("program.py", 8, "step", "@torch.no_grad()"),
    }


def test_a_decorator_without_brackets_sets_too(tmp_path: Path) -> None:
    found = places(tmp_path, "import torch\n@torch.inference_mode\nasync def step(): pass\n")
    assert found["torch.inference_mode"] == Place("program.py", 2, "step", "@torch.inference_mode")


def test_the_last_line_counts(tmp_path: Path) -> None:
    found = places(tmp_path, "import torch\ntorch.set_num_threads(a)\ntorch.set_num_threads(b)\n")
    assert found["torch.num_threads"].line == 3


def test_a_line_that_says_the_recorded_value_counts_before_a_later_one(tmp_path: Path) -> None:
    found = places(
        tmp_path, "import torch\ntorch.set_num_threads(4)\ntorch.set_num_threads(n)\ntorch.set_num_threads(1)\n"
    )
    assert found["torch.num_threads"].line == 2


def test_a_default_of_a_configuration_class_counts(tmp_path: Path) -> None:
    found = places(tmp_path, "class GPTConfig:\n    use_cache: bool = False\n    activation_function = 'relu'\n")
    assert found == {"model.model.config.use_cache": Place("program.py", 2, "<module>", "use_cache: bool = False")}


def test_a_keyword_in_a_long_call_has_its_own_line(tmp_path: Path) -> None:
    found = places(tmp_path, "GPT2Config(\n    n_layer=2,\n    use_cache=False,\n)\n")
    assert found["model.model.config.use_cache"].line == 3


@pytest.mark.parametrize(
    "content", [b"def (", b"x = '\x00'", b"\xff\xfe", b"", b"-" * 100_000 + b"1", b"# coding: no\n"]
)
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    bad.write_bytes(content)
    good.write_text("import torch\ntorch.set_num_threads(4)\n", encoding="utf-8")
    files = {"bad.py": bad, "gone.py": tmp_path / "gone.py", "folder": tmp_path, "good.py": good}
    assert [*find_places(SETTINGS, files, SETTERS).values()] == [
        Place("good.py", 2, "<module>", "torch.set_num_threads(4)")
    ]


def test_only_recorded_settings_are_looked_for(tmp_path: Path) -> None:
    assert places(tmp_path, "import torch\ntorch.set_num_threads(4)\n", {"torch.default_dtype": "float32"}) == {}


def test_own_files_are_those_of_frames_and_modules_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("step.py", "helper.py", ".venv/lib/site-packages/library.py", "../elsewhere.py", "big.py")
    root = tmp_path / "root"
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#" * (2_000_000 if name == "big.py" else 1), encoding="utf-8")
        if name != "step.py":
            module = ModuleType(f"own_files_{number}")
            module.__file__ = str(path.resolve())
            monkeypatch.setitem(sys.modules, module.__name__, module)
    frames = [Frame("step.py", 1, "step", None, None), Frame("torch/nn.py", 1, "f", "torch", 0)]
    found = own_files(frames, {"step.py": str(root / "step.py"), "torch/nn.py": "/nowhere/nn.py"}, root, NO_HINTS)
    assert [*found.items()] == [("helper.py", root / "helper.py"), ("step.py", root / "step.py")]


def test_of_many_modules_those_that_the_program_imports_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other modules of a large session are read only while they are small."""
    texts = {
        "step.py": "def step():\n    from project import (\n        models,\n    )\n",
        "project/models.py": "import project.layers as layers\n" + "#" * 400_000,
        "project/layers.py": "x = 1\n" + "#" * 400_000,
        **{f"project/unrelated{number}.py": "#" * 60_000 for number in range(3)},
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        module = ModuleType(name.removesuffix(".py").replace("/", "."))
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found = own_files(
        [Frame("step.py", 1, "step", None, None)], {"step.py": str(tmp_path / "step.py")}, tmp_path, NO_HINTS
    )
    assert [*found] == ["project/unrelated0.py", "project/layers.py", "project/models.py", "step.py"]


def test_a_thousand_lines_are_looked_through_in_no_time(tmp_path: Path) -> None:
    text = "import torch\n" + "def f(x):\n    y = torch.relu(x.w @ x.v + x.b)\n    return y.sum()\n" * 300
    start_s = time.perf_counter()
    places(tmp_path, text)
    assert time.perf_counter() - start_s < 5  # 0.04 s on a quiet machine
