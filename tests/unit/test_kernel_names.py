"""Names of kernels as people say them; the recorded ones are from public recordings and compilers' outputs."""

import json
import re
import subprocess
import sys

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.model.kernel_names import readable
from hpuprof.render import render
from hpuprof.render.brief import to_brief
from hpuprof.render.card import to_card
from hpuprof.render.column_words import named
from hpuprof.render.comparison_text import to_text

NAMES = {
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN_LDSB1_AFC1_WG16_16_1": "Cijk_Alik_Bljk_BBS_"
    "MT128x256x32",
    "Cijk_Ailk_Bljk_SB_MT64x32x16_SE_K1": "Cijk_Ailk_Bljk_SB_MT64x32x16",
    "## Call CompiledFxGraph f5rkcuisjp5yafxf6c7pnxxfyygeanfb4gmvxepmc5ltzxeo7ce4 ##": "compiled graph f5rkcuis",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)": "vectorized_elementwise_kernel<FillFunctor<float>>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::sqrt_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, "
    "2> >(int, at::native::sqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::"
    "{lambda()#2}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2>)": "vectorized_elementwise_kernel"
    "<sqrt_kernel_cuda<float>>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
    "float>, unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, "
    "unsigned int, float, 4>)": "reduce_kernel<MeanOps<float>>",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*, unsigned "
    "int)": "CatArrayBatchedCopy<float>",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>"
    "(cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4::Params)": "cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<3>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, "
    "std::plus<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<3>, float)": "multi_tensor_apply_"
    "kernel<BinaryOpListAlphaFunctor<float>>",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
    "cutlass::half_t>, false, true>(pytorch_flash::Flash_fwd_params)": "flash_fwd_kernel<Flash_fwd_kernel_traits<half>>",
    "split_embedding_backward_find_long_segments(at::GenericPackedTensorAccessor<int, 1ul>, int)": "split_embedding_"
    "backward_find_long_segments",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_": "vectorized_"
    "elementwise_kernel<FillFunctor<float>>",
    "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_11CopyFunctorIfN3c108"
    "BFloat16ELi2ELi1ELi1EEEJEEEvT_T0_DpT1_": "multi_tensor_apply_kernel<CopyFunctor<float, bf16>>",
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_12_GLOBAL__N_115exp_kernel_cudaERNS_18TensorIteratorBaseEEN"
    "KUlvE_clEvENKUlvE_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_": "vectorized_elementwise_kernel<exp_kernel_cuda<float>>",
    "_ZN7cutlass6KernelI32cutlass_80_wmma_tensorop_s161616EEvNT_6ParamsE": "cutlass_80_wmma_tensorop_s161616",
    "_Z9my_kernelPfi": "my_kernel",
    "_ZN4vllm25paged_attention_v1_kernelIthLi64EEEvPT_": "paged_attention_v1_kernel<int>",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_diib": "add_rmsnorm_quant"
    "_kernel<bf16>",
    "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i": "act"
    "_and_mul_kernel<silu>",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblemIDF16_"
    "EEEEEEvDpT1_": "Rmsnorm2dFwd<Rmsnorm2dFwdPipelineOnePass<half>>",
}
CUT = {
    "void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams<float, fl": (
        "winogradWgradData4x4<float>"
    ),
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BUnaryFunctor<float, f": (
        "elementwise_kernel<BUnaryFunctor<float>>"
    ),
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::Opaq": (
        "CatArrayBatchedCopy"
    ),
}
PLAIN = (
    "volta_sgemm_128x64_nt",
    "triton_poi_fused_add_relu_0",
    "aten::add_",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "Memcpy HtoD (Pageable -> Device)",
    "Optimizer.step#SGD.step",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "[pl][profile]run_training_batch",
    "\x1b[31mred</script><img src=x onerror=alert(1)>[bold]|`x`",
    "resnet50.py(44): <module>",
    "_Zoo",
    "_ZN4",
    "",
)


@pytest.mark.parametrize(("name", "short"), {**NAMES, **CUT}.items())
def test_a_kernel_is_named_by_function_and_what_it_applies(name, short):
    assert readable(name) == short
    assert readable(short) == short


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_no_cpp_name_stays(name):
    assert readable(name) == name


@pytest.mark.parametrize(
    ("torn", "short"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFuncto", "vectorized_elementwise_kernel"),
        (
            "_ZN7cutlass6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_4gem",
            "ImplicitGemmConvolution<ImplicitGemmMultistage>",
        ),
    ],
)
def test_of_a_name_that_was_cut_off_what_is_whole_is_read(torn, short):
    assert readable(torn) == short


def test_what_cannot_be_read_stays_whole():
    torn = "_ZN2at6native29vectorized_elementwise_ker"
    assert readable(torn) == torn
    deep = "_Z1f" + "I1f" * 5000
    assert readable(deep) == deep
    wide = "void f<" + "a<" * 5000 + "(int)"
    assert readable(wide)


def test_views_write_kernels_readably_and_keep_actions_of_lightning():
    name, short = next(iter(NAMES.items()))
    assert named(name) == short
    assert named("[pl][profile]run") == "run"


def test_the_same_in_every_process():
    code = "import json, sys; from hpuprof.model.kernel_names import readable; print(json.dumps([readable(n) for n in json.load(sys.stdin)]))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(list(NAMES)), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [readable(n) for n in NAMES]


MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
DEMANGLED = next(iter(NAMES))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A program with a mangled kernel and a demangled one."""
    folder = tmp_path_factory.mktemp("kernels")

    def program(length):
        b = TraceBuilder()
        for i in range(6):
            at = 1000 * i
            b.step(i, at, 1000).host("aten::fill_", at + 10, 30).host("aten::zero_", at + 50, 30)
            b.kernel(MANGLED, at + 200, length, launch=at + 15).kernel(DEMANGLED, at + 600, length, launch=at + 55)
        return hpuprof.analyze(b.write(folder / f"{length}.json"), jobs=1)

    return program(100), program(300)


@pytest.mark.parametrize("form", [".txt", ".md", ".html", "card", "brief", "compared", "compared.html", "compared.md"])
def test_every_view_names_kernels_in_short(recorded, form):
    report, other = recorded
    made = {
        "card": lambda: to_card(report),
        "brief": lambda: to_brief(report, []),
        "compared": lambda: (
            to_text(hpuprof.compare(report, other), width=200) + hpuprof.compare(report, other).explanation
        ),
        "compared.html": lambda: render(hpuprof.compare(report, other), ".html"),
        "compared.md": lambda: render(hpuprof.compare(report, other), ".md"),
    }.get(form, lambda: render(report, form))()
    shown = re.sub(r'title="[^"]*"', "", made)  # the whole of what was shortened, where the pointer rests
    assert "_ZN2at" not in shown.replace("\\_", "_")
    assert "std::array" not in shown
    if form != "card":
        assert "vectorized" in shown


def test_json_keeps_the_recorded_names(recorded):
    assert MANGLED in render(recorded[0], ".json")
    assert {MANGLED, DEMANGLED} <= {row.name for row in recorded[0].data.kernels}
