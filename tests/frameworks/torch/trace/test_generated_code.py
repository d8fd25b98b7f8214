"""Code that the compiler generated, read for the operators of its kernels. Excerpts of PyTorch's own, shortened."""

from joulediff.frameworks.torch.trace.generated_code import Graph, Part, find_graph, ops_in_name, parse_graph

# PyTorch 2.11, Triton 3.6, H200.
ON_GPU = """
# AOT ID: ['0_inference']
aten = torch.ops.aten
async_compile = AsyncCompile()

# kernel path: /tmp/torchinductor_root/z2/cz2.py
# Topologically Sorted Source Nodes: [x_5, mul, pow_1, tanh], Original ATen: [aten.view, aten.mul, aten.pow, aten.tanh]
# Source node to ATen node mapping:
#   mul => mul_4
# Graph fragment:
#   %addmm_2 : Tensor "f16[2048, 3072][3072, 1]cuda:0" = PlaceHolder[target=addmm_2]
#   return %view_11
triton_poi_fused_mul_pow_tanh_view_4 = async_compile.triton('triton_poi_fused_mul_pow_tanh_view_4', '''
import triton

@triton.jit
def triton_poi_fused_mul_pow_tanh_view_4(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
''', device_str='cuda')

async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            buf17 = empty_strided_cuda((2048, 3072), (3072, 1), torch.float16)
            # Topologically Sorted Source Nodes: [x_4], Original ATen: [aten.native_layer_norm, aten.addmm]
            extern_kernels.addmm(arg0_1, reinterpret_tensor(buf16, (2048, 768), (768, 1), 0), arg1_1, out=buf17)
            buf18 = reinterpret_tensor(buf17, (8, 256, 3072), (786432, 3072, 1), 0); del buf17  # reuse
            # Topologically Sorted Source Nodes: [tanh], Original ATen: [aten.view, aten.mul, aten.pow, aten.tanh]
            stream0 = get_raw_stream(0)
            triton_poi_fused_mul_pow_tanh_view_4.run(buf18, 6291456, stream=stream0)
            # Source Nodes: [attn], Original ATen: [aten.transpose, aten._scaled_dot_product_cudnn_attention]
            buf7 = torch.ops.aten._scaled_dot_product_cudnn_attention.default(buf18, buf18, buf18, None, False)
            assert_size_stride(buf7[0], (8, 12), (12, 1), 'torch.ops.aten._scaled_dot_product_cudnn_attention.default')
        return (buf18, )

runner = Runner(partitions=[])
call = runner.call

def benchmark_compiled_module(times=10, repeat=10):
    extern_kernels.addmm(1)
"""

# PyTorch 2.13, C++.
ON_CPU = """
cpp_fused_add_arange_embedding_0 = async_compile.cpp_pybinding(['float*', 'const int64_t*'], r'''
extern "C"  void  kernel(float* in_out_ptr0)
{
}
''')

def call(args):
    buf1 = empty_strided_cpu((2, 64, 1), (64, 1, 128), torch.float32)
    cpp_fused_add_arange_embedding_0(buf1, arg0_1)
    buf9 = torch.ops.aten.cumsum.default(buf8, dim=-1, dtype=torch.int64)
    buf12 = torch.ops.mkldnn._linear_pointwise.default(buf9, arg2_1)
    return (buf9, )
"""

# Partitions, as with CUDA graphs, and a kernel of the program.
PARTITIONED = """
# Original ATen: []
add_kernel_0 = async_compile.triton('add_kernel', '''
''', device_str='cuda')
triton_poi_fused_sin_1 = async_compile.triton('triton_poi_fused_sin_1', '''
''', device_str='cuda')

def partition_0(args):
    add_kernel_0.run(arg0_1, buf0, 1024, stream=stream0)
    return (buf0, )

def partition_1(args):
    # Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]
    triton_poi_fused_sin_1.run(buf0, 1024, stream=stream0)
    return (buf0, )

class Runner:
    def call(self, args):
        (buf0,) = self.partitions[0](partition0_args)
        # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
        extern_kernels.mm(buf0, buf0, out=buf1)
        (buf2,) = self.partitions[1](partition1_args)
        return (buf2, )
"""


def test_kernels_and_calls_of_a_gpu_with_their_operators():
    assert parse_graph(ON_GPU) == (
        Part("aten::addmm", ("aten::addmm",), is_generated=False),
        Part(
            "triton_poi_fused_mul_pow_tanh_view_4",
            ("aten::view", "aten::mul", "aten::pow", "aten::tanh"),
            is_generated=True,
        ),
        Part(
            "aten::_scaled_dot_product_cudnn_attention",
            ("aten::_scaled_dot_product_cudnn_attention",),
            is_generated=False,
        ),
    )


def test_kernels_in_cpp_have_no_comment():
    assert parse_graph(ON_CPU) == (
        Part("cpp_fused_add_arange_embedding_0", (), is_generated=True),
        Part("aten::cumsum", ("aten::cumsum",), is_generated=False),
        Part("mkldnn::_linear_pointwise", ("mkldnn::_linear_pointwise",), is_generated=False),
    )


def test_partitions_run_where_they_are_called():
    assert [part.name for part in parse_graph(PARTITIONED)] == ["add_kernel", "aten::mm", "triton_poi_fused_sin_1"]


def test_a_call_with_the_bias_in_another_kernel_is_the_operator_of_the_program():
    text = """
def call(args):
    # Topologically Sorted Source Nodes: [x], Original ATen: [aten.t, aten.addmm]
    extern_kernels.mm(arg0_1, reinterpret_tensor(arg1_1, (3, 4), (1, 3), 0), out=buf0)
"""
    assert parse_graph(text) == (Part("aten::mm", ("aten::addmm", "aten::mm"), is_generated=False),)


def test_code_of_something_else_has_no_parts():
    assert parse_graph("import torch\n") == ()


def test_names_of_kernels_name_operators():
    known = {name: f"aten::{name}" for name in ("add", "native_layer_norm", "_softmax", "exp", "mul", "native")}
    assert ops_in_name("triton_red_fused__softmax_add_exp_native_layer_norm_unknown_mul_12", known) == (
        "aten::_softmax",
        "aten::add",
        "aten::exp",
        "aten::native_layer_norm",
        "aten::mul",
    )
    assert ops_in_name("cpp_fused_add_0", known) == ("aten::add",)
    assert ops_in_name("add_kernel", known) == ()


def test_a_graph_is_found_by_its_key_or_else_by_what_it_shows():
    def graph(*names, keys=()):
        return Graph(tuple(Part(name, (), is_generated=True) for name in names), frozenset(keys))

    graphs = [graph("a", "b", keys=["one"]), graph("a", "c", "d", keys=["two"]), graph("e")]
    assert find_graph(graphs, "two", ["a", "b"]) is graphs[1]
    assert find_graph(graphs, None, ["a", "b"]) is graphs[0]
    assert find_graph(graphs, None, ["c", "d"]) is graphs[1]
    assert find_graph(graphs, None, ["x"]) is None
    assert find_graph([], "two", ["a"]) is None
