import pytest

from falloff.ingest.kernel_names import NAMING, classify, collective_of

# names as profilers write them
COMMUNICATION = {
    "falloff_late_rank": None,
    # NCCL, from before 2.8 to symmetric kernels of 2.27; lower case and prefixed in some exports
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "AllReduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "AllReduce",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "AllGather",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "ReduceScatter",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "SendRecv",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "Broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "Reduce",
    "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs)": "AllReduce",
    "nccldevkernel_allreduce_sum_f32_ring_ll": "AllReduce",
    "void ncclKernel_AllToAll_RING(x)": "AllToAll",
    "my_ncclDevKernel_AllGather_RING_LL": "AllGather",
    # RCCL
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": None,
    "rcclDevKernel_AllReduce_Sum_f32": "AllReduce",
    # torch's symmetric memory and its forerunner
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**, x)": "AllReduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(x)": "AllReduce",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, x)": "AllReduce",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*, float*)": "AllReduce",
    "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, false>(x)": "AllReduce",
    "void c10d::symmetric_memory::multimem_all_gather_kernel<16>(char*, char*)": "AllGather",
    # NVSHMEM, DeepEP
    "nvshmemi_transfer_rma_block": None,
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)": "Dispatch",
    "void deep_ep::internode::combine<8, __nv_bfloat16, 8>(int4*)": "Combine",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)": "Dispatch",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "Dispatch",
    "void deep_ep::intranode::barrier<8>(int**, int)": "Barrier",
    # Transformer Engine, vLLM, SGLang, AITER, TensorRT-LLM, FlashInfer
    "void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int)": "AllReduce",
    "void userbuffers_fp16_sum_inplace_gpu_mc_ag<8>(int, int)": "AllGather",
    "kuserbuffers_pushrecv(int, int, int*)": "SendRecv",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "AllReduce",
    "void sglang::cross_device_reduce_2stage<__half, 2>(x)": "AllReduce",
    "void aiter::cross_device_reduce_1stage_naive<float, 8>(x)": "AllReduce",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<x>": "AllReduce",
    "void flashinfer::trtllm_moe_alltoall::moeA2ADispatchKernel<x>": "AllToAll",
    # MSCCL, MSCCL++, oneCCL, Habana
    "mscclKernel_Sum_float_Simple_false(ncclDevComm*)": None,
    "mscclpp::allreduce6<float>(float*)": "AllReduce",
    "oneccl_allreduce_small_kernel": "AllReduce",
    "ccl::sycl::allgatherv_large_kernel": "AllGather",
    "hccl_reduce_scatter": "ReduceScatter",
    "my_own_all_reduce": "AllReduce",
}
COMPUTE = (
    "sm80_xmma_gemm_bf16",
    "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<int>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
    "void cub::DeviceReduceKernel<x>(x)",
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
    "triton_red_fused__to_copy_reduce_scatter_tensor_1",
    "void deep_ep::layout::get_dispatch_layout<256>(long const*)",
    "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>",
    "void at::native::batch_norm_sync_stats<float>",
    "sm90_cp_async_gemm",
    "void deviceAsyncCopy_gemm<4>",
    "void cutlass::Kernel<cutlass::arch::WaitStreamSync>(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(x)",
    "broadcast_add_kernel",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
)
COPIES = (
    "cudaMemsetsync",
    "Memset (Device)",
    "Memcpy DtoD (Device -> Device)",
    "my_memcpy_kernel",
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_fillBufferAligned",
    "CopyHostToDevice",
)
SYNC = (
    "Stream Wait Event",
    "Stream Sync",
    "Event Sync",
    "Context Sync",
    "cudaDeviceSynchronize",
    "hipStreamSynchronize",
    "cudaStreamWaitEvent",
    "cuStreamSynchronize",
    "cudaKernelSync",
    "hipEventSynchronize",
    "Command Buffer Full",
)


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_is_told_with_its_collective(name: str) -> None:
    found = classify(name)
    assert (found.kind, found.collective) == ("communication", COMMUNICATION[name])
    assert found.family


def test_kernels_that_only_sound_like_communication_are_compute() -> None:
    assert {name: classify(name).kind for name in COMPUTE} == dict.fromkeys(COMPUTE, "compute")


def test_copies_memsets_and_synchronisation_are_never_compute_wherever_the_word_stands() -> None:
    assert {name: classify(name).kind for name in COPIES} == dict.fromkeys(COPIES, "copy")
    assert {name: classify(name).kind for name in SYNC} == dict.fromkeys(SYNC, "sync")


def test_what_kineto_calls_a_copy_is_one_whatever_its_name() -> None:
    assert classify("ncclDevKernel_AllReduce", "gpu_memcpy").kind == "copy"
    assert classify("Memset (Device)", "gpu_memset").kind == "copy"
    assert classify("gemm", "concurrent_kernel").kind == "compute"


def test_the_arguments_of_torch_name_collectives_too() -> None:
    called = {
        "_allgather_base": "AllGather",
        "allreduce": "AllReduce",
        "_reduce_scatter_base": "ReduceScatter",
        "all_to_allv": "AllToAll",
        "allreduce_coalesced": "AllReduce",
        "send": "Send",
        "coalesced": None,
    }
    assert {name: collective_of(name) for name in called} == called


def test_names_of_one_s_own_come_first() -> None:
    mine = NAMING.with_names("^halo_", "gemm_then_send")
    assert classify("halo_exchange_x", naming=mine) == ("communication", None, "custom")
    assert classify("gemm_then_send_kernel", naming=mine).kind == "communication"
    assert classify("halo_exchange_x").kind == "compute"


def test_a_rule_that_is_no_regular_expression_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        NAMING.with_names("(")


def test_the_kernels_of_pplx_communicate() -> None:
    assert classify("void pplx::a2a::combine<__nv_bfloat16>(int)").kind == "communication"
