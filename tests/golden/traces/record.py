"""Record the traces in this folder: `python tests/golden/traces/record.py FOLDER` on a machine with a GPU.

Each file holds the trace of one step as PyTorch's profiler wrote it, cut down to the step and to what is read
of it, and the operators that the captured pass saw of the same step.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl
from transformers import GPT2Config, GPT2LMHeadModel

from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.state import seeded
from joulediff.frameworks.torch.trace.trace import write_trace

CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset")
ARGUMENTS = (
    "External id", "correlation", "device", "stream", "grid", "block", "bytes", "Sequence number",
)  # fmt: skip


def cut(trace):
    """Return the part of a trace that belongs to the step, counted from its begin."""
    events = [event for event in trace["traceEvents"] if event.get("cat") in CATEGORIES and event.get("ph") == "X"]
    step = next(event for event in events if event["name"] == "joulediff.step" and event["cat"] == "user_annotation")
    inside = [event for event in events if 0 <= event["ts"] - step["ts"] < step["dur"]]
    launched = {event["args"].get("correlation") for event in inside if event["cat"].startswith("cuda_")}
    device = [event for event in events if event["cat"] in CATEGORIES[4:] and event["args"]["correlation"] in launched]
    host = [event for event in inside if event["cat"] in CATEGORIES[:4]]
    return {"traceEvents": [shorten(event, step["ts"]) for event in (*host, *device)]}


def shorten(event, begin_us):
    arguments = {key: value for key, value in event.get("args", {}).items() if key in ARGUMENTS}
    kept = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "dur")}
    return kept | {"ts": round(event["ts"] - begin_us, 3), "args": arguments}


def record(folder, name, step):
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as place, seeded() as begin:
        write_trace(step, Path(place) / "trace.json", begin=begin)
        captured = capture_step(step, begin=begin)
        trace = json.loads((Path(place) / "trace.json").read_text())
    ops = [
        [op.name, op.thread, op.device, op.inference, op.compiled, op.forward, op.module] for op in captured.ops
    ]  # fmt: skip
    found = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "trace": cut(trace), "ops": ops}
    text = json.dumps(found | {"compiled_modules": captured.compiled_modules}, separators=(",", ":"))
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def gpt2(layers):
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=layers)).cuda()


def forward(folder):
    model, ids = gpt2(2).half().eval(), torch.randint(0, 50257, (8, 256), device="cuda")

    def without_gradient():
        with torch.no_grad():
            return model(ids).logits

    def in_inference_mode():
        with torch.inference_mode():
            return model(ids).logits

    record(folder, "gpt2_nograd", without_gradient)
    record(folder, "gpt2_inference", in_inference_mode)
    record(
        folder,
        "gpt2_generate",
        lambda: model.generate(ids[:2, :8], max_new_tokens=2, do_sample=False, pad_token_id=0),
    )


def training(folder):
    model, ids = gpt2(2), torch.randint(0, 50257, (2, 64), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    record(folder, "gpt2_train", step)


def compiled(folder):
    """Two compiled blocks in a model that is not: forward and backward, and the code between them."""
    model, ids = gpt2(2), torch.randint(0, 50257, (2, 64), device="cuda")
    for block in model.transformer.h:
        block.mlp = torch.compile(block.mlp)

    def step():
        model.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        return loss.detach()

    record(folder, "gpt2_compiled_train", step)
    whole = torch.compile(gpt2(2).half().eval())

    def without_gradient():
        with torch.no_grad():
            return whole(ids).logits

    record(folder, "gpt2_compiled", without_gradient)


@triton.jit
def add_one(x, y, n, size: tl.constexpr):
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def streams(folder):
    """Two streams, copies that block and one that does not, a wait, a Triton kernel and a CUDA graph."""
    side, a = torch.cuda.Stream(), torch.randn(1024, 1024, device="cuda")
    graph, pinned = torch.cuda.CUDAGraph(), torch.empty(1024, 1024, pin_memory=True)
    with torch.cuda.graph(graph):
        replayed = (a @ a).relu() + 1

    def step():
        b = a @ a
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            c = (a @ a.t()).relu_()
        torch.cuda.current_stream().wait_stream(side)
        d = b + c
        if d.sum().item() > 0:
            d = d + 1
        torch.ones(1000, 1000).cuda()
        pinned.copy_(d, non_blocking=True)
        torch.cuda.synchronize()
        y = torch.empty_like(d)
        add_one[(1024,)](d, y, d.numel(), size=1024)
        graph.replay()
        return y.cpu(), replayed * 2

    record(folder, "streams", step)


if __name__ == "__main__":
    for part in (forward, training, streams, compiled):
        part(Path(sys.argv[1]))
