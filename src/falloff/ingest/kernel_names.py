"""What a device event is, told by its name: compute, communication (and which collective), copy, or neither.

The rules are a list of regular expressions, each with the library it is evidence of; NAMING.with_names adds one's own.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["compute", "communication", "copy", "sync"]
KINDS: tuple[Kind, ...] = ("compute", "communication", "copy", "sync")

CUSTOM = "custom"
UNNAMED = "unnamed"  # a communication kernel whose name and arguments do not say which collective it is
_UNNAMED_NAMESPACE = "(anonymous namespace)::"


class KernelClass(NamedTuple):
    """Class of a device event; collective and family (the library) are of communication alone."""

    kind: Kind
    collective: str | None = None
    family: str | None = None


# __amd_rocclr_copyBuffer and fillBuffer are HIP's copies and memsets that run as kernels; roctracer names them
# CopyHostToDevice and FillBuffer elsewhere
_MEMORY = re.compile(r"mem(cpy|set)|amd_rocclr_(copy|fill)|^(Copy\w+To\w+|FillBuffer)", re.IGNORECASE)
# Kineto draws cuda_sync events ("Stream Wait Event", "Context Sync") and overheads on the device's rows
_SYNC = re.compile(
    r"^[^<(]*?\b(cuda|cu|hip|stream|event|context|device)[a-z ]*?[ _]?((?<!a)sync|wait)"
    r"|^\w*[ _]sync$|^Command Buffer Full|^Launch Throttl|^overhead",
    re.IGNORECASE,
)

# (library, what its communication kernels are called); searched in this order, whatever stands before the name
_LIBRARIES: tuple[tuple[str, str], ...] = (
    # ncclAllReduceRingLLKernel_sum_f32 before 2.8, ncclKernel_AllReduce_RING_LL_Sum_float until 2.18,
    # ncclDevKernel_AllReduce_Sum_f32_RING_LL since, ncclSymkDevKernel_ for symmetric buffers since 2.27
    ("nccl", r"(?<![a-z])nccl\w*kernel"),
    # RCCL mostly keeps NCCL's names (ncclDevKernel_Generic_4), or writes its own prefix
    ("rccl", r"(?<![a-z])rccl\w*kernel|(?<![a-z])rccl_"),
    ("mscclpp", r"msccl(pp|\+\+)"),
    ("msccl", r"msccl"),
    ("oneccl", r"one_?ccl|(?<![a-z])ccl(::|_\w*(reduce|gather|scatter|alltoall|bcast|broadcast|kernel|send|recv))"),
    ("hccl", r"(?<![a-z])hccl"),
    # torch's symmetric memory: one_shot_all_reduce_kernel, two_shot_..., multimem_all_reduce_kernel, put_signal_kernel;
    # before that intra_node_comm::oneShotAllReduceKernel
    ("symmetric memory", r"(one|two)_?shot_?all_?reduce|multimem_|symm(etric)?_?mem|intra_?node_?comm"),
    ("symmetric memory", r"(put|wait)_signal_kernel|hybridCubeMeshAllReduce"),
    # deep_ep::intranode::dispatch, internode::combine, internode_ll::dispatch; its layout is local arithmetic
    ("deepep", r"(deep|hybrid)_ep::(?!layout)|(intranode|internode)(_ll)?::(\w*dispatch|\w*combine|\w*notify|barrier)"),
    ("nvshmem", r"nvshmem"),
    ("pplx", r"(?<![a-z])pplx::"),
    # Transformer Engine: userbuffers_fp16_sum_inplace_gpu_rw, kuserbuffers_pushrecv
    ("userbuffers", r"userbuffers"),
    # vLLM, SGLang, AITER: cross_device_reduce_1stage, _2stage; quickreduce
    ("custom all-reduce", r"cross_device_reduce|quick_?reduce"),
    ("mori", r"(?<![a-z])mori::|EpDispatch|EpCombine"),
    # our own, by which one rank is late for a collective that a control lengthens
    ("falloff", r"^falloff_late_rank"),
)
# TensorRT-LLM's, FlashInfer's and one-off kernels say what they do. Inductor names a fused compute kernel after the
# graph's operators (triton_poi_fused_all_gather_into_tensor_wait_tensor_0), which is no communication.
_SAYS_COLLECTIVE = (
    r"^(?!.*triton_(poi|red|per|tem|for|mm)_)[^<(]*?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
)

# the first that is found in a name; longer words before the words they hold
_COLLECTIVES: tuple[tuple[str, str], ...] = (
    ("AllReduce", r"all_?-?reduce|cross_device_reduce|quick_?reduce|fp16_sum_inplace_gpu_(rw|mc)(?!_(rs|ag))"),
    ("ReduceScatter", r"reduce_?-?scatter|userbuffers_\w*_rs(_|\b)"),
    ("AllGather", r"all_?-?gather|userbuffers_\w*_ag(_|\b)"),
    ("AllToAll", r"all_?-?to_?-?all|a2a"),
    ("SendRecv", r"send_?-?recv|(push|pull)(send)?recv|pushsend"),
    ("Broadcast", r"broadcast|bcast"),
    ("Dispatch", r"dispatch"),
    ("Combine", r"combine"),
    ("Barrier", r"barrier"),
    ("Reduce", r"reduce"),
    ("Gather", r"gather"),
    ("Scatter", r"scatter"),
    ("Send", r"send"),
    ("Recv", r"recv"),
)
_COLLECTIVE_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _COLLECTIVES)

POINT_TO_POINT = frozenset({"SendRecv", "Send", "Recv"})
# all ranks leave these together: none is done before the last has come
SYNCHRONISING = frozenset({"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier"})


@dataclass(frozen=True)
class Naming:
    """Rules for communication kernels: pairs of a library and a regular expression, searched without case in order."""

    rules: tuple[tuple[str, str], ...] = (*_LIBRARIES, (CUSTOM, _SAYS_COLLECTIVE))

    def __post_init__(self) -> None:
        for family, pattern in self.rules:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"names of {family} kernels: {pattern!r} is no regular expression ({error})"
                ) from error

    def with_names(self, *patterns: str) -> "Naming":
        """Return these rules after one's own, which win; ValueError for what is no regular expression."""
        return Naming((*((CUSTOM, pattern) for pattern in patterns), *self.rules))

    def family_of(self, name: str) -> str | None:
        """Return the library whose communication kernels are called so; None for any other kernel."""
        words = name.replace(_UNNAMED_NAMESPACE, "")
        return next((family for family, rule in self.rules if re.search(rule, words, re.IGNORECASE)), None)


NAMING = Naming()


def classify(name: str, category: str = "kernel", naming: Naming = NAMING) -> KernelClass:
    """Return the class of a device event from its name and Kineto category.

    Copies and memsets are neither compute nor idle and synchronisation is neither, wherever the word stands. A
    collective is None where the name does not say it (ncclDevKernel_Generic).
    """
    if "kernel" not in category.lower() or _MEMORY.search(name):
        return KernelClass("copy")
    family = naming.family_of(name)
    if family:
        return KernelClass("communication", collective_of(name), family)
    return KernelClass("sync") if _SYNC.search(name) else KernelClass("compute")


def collective_of(words: str) -> str | None:
    """Return which collective a kernel's name, or the argument "Collective name", says; None where it says none."""
    # parameters may name types of anything: ncclDevKernelArgsStorage, ncclWorkElem
    name = words.replace(_UNNAMED_NAMESPACE, "").partition("(")[0]
    return next((collective for collective, pattern in _COLLECTIVE_PATTERNS if pattern.search(name)), None)
