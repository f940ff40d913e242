"""How Kineto writes events: layout, field order and arguments as in traces of torch 2.11, values invented."""

from benchmarks.schedule import COMMUNICATION, COPY, MEMSET, SIDE, Activity, Collective

# Kineto of 2024 and later writes microseconds relative to this, with three decimals.
BASE_NS = 1_790_857_026_000_000_000
START_NS = 5_149_270_881_860_133  # of the first step, after the base
HOST_PID, MAIN_THREAD, BACKWARD_THREAD = 886, 886, 936

KERNELS = (
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT",
    "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNN",
    "triton_red_fused__to_copy_add_mul_native_dropout_pow_rsqrt_sum_3",
    "triton_poi_fused__unsafe_view_mul_silu_6",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>"
    "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8::Params)",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>,"
    " false, true, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float> > >",
)
SIDE_KERNEL = "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<1024>(char**, char**, long*, long*)"
COPY_NAMES = ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memcpy DtoH (Device -> Pinned)")
COMM_KERNELS = {
    "AllGather": ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "_allgather_base"),
    "ReduceScatter": (
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_reduce_scatter_base",
    ),
    "AllReduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
}
OPERATORS = ("aten::mm", "aten::mul", "aten::copy_", "aten::_fused_adamw_", "aten::add_", "aten::view", "aten::empty")
CALLS = (  # runtime calls that start nothing on the device, with CUPTI's number of each
    ("cudaEventRecordWithFlags", 426),
    ("cudaStreamWaitEvent", 147),
    ("cudaEventQuery", 136),
    ("cudaStreamIsCapturing", 317),
)
LAUNCH = (("cudaLaunchKernel", 211), ("cuLaunchKernelEx", 652), ("cudaMemsetAsync", 51), ("cudaMemcpyAsync", 41))


def us(ns: int) -> str:
    """Return nanoseconds as Kineto's microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def header(rank: int, world_size: int, groups: list[tuple[str, str, tuple[int, ...]]]) -> str:
    """Return what stands before the events."""
    config = ", ".join(
        f'{{"pg_name": "{name}", "pg_desc": "{description}", "backend_config": "cuda:nccl", '
        f'"pg_size": {len(ranks)}, "ranks": {list(ranks)}}}'
        for name, description, ranks in groups
    )
    return (
        '\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    {\n      "id": 0, "name": "Synthetic GPU", '
        '"totalGlobalMem": 150109880320,\n      "computeMajor": 9, "computeMinor": 0, "numSms": 132\n    }\n    ],\n'
        '      "record_shapes": 1,\n'
        f'      "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world_size}, '
        f'"pg_count": {len(groups)}, "pg_config": [{config}], "nccl_version": "2.28.9"}},\n'
        f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    )


def footer(rank: int) -> str:
    """Return what stands after the events."""
    return f'\n  ],\n  "traceName": "./profile_trace/rank{rank}_trace.json"\n}}\n'


def event(category: str, name: str, where: tuple[int, int], span: tuple[int, int], arguments: str) -> str:
    """Return one complete event; where is (pid, tid), span is (start, duration) in nanoseconds."""
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {where[0]}, "tid": {where[1]},\n'
        f'    "ts": {us(span[0])}, "dur": {us(span[1])},\n    "args": {{\n      {arguments}\n    }}\n  }}'
    )


def flow(end: str, number: int, where: tuple[int, int], at_ns: int) -> str:
    """Return one end of an arrow from the host's call to what it started; end is 's' or 'f'."""
    bind = ', "bp": "e"' if end == "f" else ""
    return (
        f'  {{\n    "ph": "{end}", "id": {number}, "pid": {where[0]}, "tid": {where[1]}, "ts": {us(at_ns)},\n'
        f'    "cat": "ac2g", "name": "ac2g"{bind}\n  }}'
    )


def operator(number: int, thread: int, start_ns: int, duration_ns: int) -> str:
    """Return an operator of the host with the shapes that record_shapes writes."""
    if number % 10 < 9:  # the autograd engine's own ranges carry no shapes
        arguments = f'"External id": {number},"Record function id": 0, "Ev Idx": {number}'
    else:
        rows = 1024 << (number % 4)
        arguments = (
            f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", ""], '
            f'"Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[{rows}, 1], [1, {rows}]], '
            f'"Input Dims": [[{rows}, 4096], [4096, {rows}]], "Ev Idx": {number}'
        )
    return event("cpu_op", OPERATORS[number % len(OPERATORS)], (HOST_PID, thread), (start_ns, duration_ns), arguments)


def call(name: str, cbid: int, correlation: int, thread: int, span: tuple[int, int]) -> str:
    """Return a call of the CUDA runtime or driver."""
    category = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
    arguments = f'"External id": {correlation},      "cbid": {cbid}, "correlation": {correlation}'
    return event(category, name, (HOST_PID, thread), span, arguments)


def launch_of(activity: Activity) -> tuple[str, int]:
    """Return the call, and its number, that starts an activity of the device."""
    if activity.kind in (COPY, MEMSET):
        return LAUNCH[3 if activity.kind == COPY else 2]
    return LAUNCH[activity.label & 1]


def device_event(activity: Activity, collective: Collective | None, correlation: int, offset_ns: int) -> str:
    """Return a kernel, copy or memset; offset_ns is what this rank's clock adds to the true time."""
    span = (activity.start_ns + offset_ns, activity.end_ns - activity.start_ns)
    where = (0, activity.stream)
    if activity.kind in (COPY, MEMSET):
        return _copy(activity, correlation, where, span)
    if activity.kind == COMMUNICATION:
        assert collective is not None
        name, extra = COMM_KERNELS[collective.name][0], _metadata(collective)
        grid, registers = 24, 96
    else:
        name = SIDE_KERNEL if activity.stream == SIDE else KERNELS[activity.label % len(KERNELS)]
        extra, grid, registers = "", 1 + activity.label % 4096, 16 + activity.label % 240
    arguments = (
        f'"External id": {correlation},      "queued": 0, "device": 0, "context": 1,      "stream": {activity.stream}, '
        f'"correlation": {correlation},      "registers per thread": {registers},      "shared memory": 2048,      '
        f'"blocks per SM": {grid / 132:.6f},      "warps per SM": {grid / 33:.6f},      "grid": [{grid}, 1, 1],      '
        f'"block": [512, 1, 1],      "est. achieved occupancy %": {min(100, grid // 33)}{extra}'
    )
    return event("kernel", name, where, span, arguments)


def _copy(activity: Activity, correlation: int, where: tuple[int, int], span: tuple[int, int]) -> str:
    num_bytes = 4 if activity.kind == MEMSET else span[1] * 40
    arguments = (
        f'"External id": {correlation}, "device": 0, "context": 1, "stream": {activity.stream}, '
        f'"correlation": {correlation}, "bytes": {num_bytes}, "memory bandwidth (GB/s)": {num_bytes / span[1]}'
    )
    if activity.kind == MEMSET:
        return event("gpu_memset", "Memset (Device)", where, span, arguments)
    return event("gpu_memcpy", COPY_NAMES[activity.label % len(COPY_NAMES)], where, span, arguments)


def _metadata(collective: Collective) -> str:
    size = len(collective.group)
    each, whole = collective.num_elements // size, collective.num_elements
    sent, received = {"AllGather": (each, whole), "ReduceScatter": (whole, each)}.get(collective.name, (whole, whole))
    name, description = group_name(collective)
    return (
        f', "Collective name": "{COMM_KERNELS[collective.name][1]}", "In msg nelems": {sent}, '
        f'"Out msg nelems": {received}, "Group size": {size}, "dtype": "BFloat16", "In split size": "[]", '
        f'"Out split size": "[]", "Process Group Name": "{name}", "Process Group Description": "{description}", '
        f'"Process Group Ranks": "{list(collective.group)}"'
    )


def group_name(collective: Collective) -> tuple[str, str]:
    """Return the name and description of a collective's process group.

    Gathers and scatters have one each, as in Megatron-LM: calls of one group never overlap (0 of 121 in the shared
    trace of TorchTitan, which has a single group for both), and here they do.
    """
    if collective.name == "AllReduce":
        return "0", "default_pg"
    if collective.name == "AllGather":
        return str(1 + collective.group[0]), "mesh_gather"
    return str(101 + collective.group[0]), "mesh_scatter"


def annotation(category: str, name: str, where: tuple[int, int], span: tuple[int, int], number: int) -> str:
    """Return a range named by the user or the profiler, on the host or as the device saw it."""
    return event(category, name, where, span, f'"External id": {number}')


def sync_event(name: str, stream: int, span: tuple[int, int], correlation: int) -> str:
    """Return one of the synchronisation events that the profiler adds on request; they are no work."""
    arguments = (
        f'"cuda_sync_kind": "{name}", "stream": {stream}, "correlation": {correlation}, "device": 0, "context": 1, '
        f'"wait_on_stream": {stream}, "wait_on_cuda_event_record_corr_id": {correlation - 1}'
    )
    return event("cuda_sync", name, (0, stream), span, arguments)


def metadata(name: str, pid: int, key: str, value: str) -> str:
    """Return an event that names a process."""
    return (
        f'  {{\n    "name": "{name}", "ph": "M", "ts": {us(START_NS)}, "pid": {pid}, "tid": 0,\n'
        f'    "args": {{\n      "{key}": {value}\n    }}\n  }}'
    )
