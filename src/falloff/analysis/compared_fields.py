"""What is compared of two records: each field with what its difference does, and how small a difference is none."""

from typing import Literal

Concern = Literal["speed", "energy", "memory"]

# What a difference does to a comparison; None marks identity that changes no number by itself.
RUN_FIELDS: dict[str, str | None] = {
    "source": "two sources count and steady their numbers in their own ways",
    "provenance": "a reading, a table in print and a prediction are different kinds of evidence",
    "outcome": "a run that failed has at most its first steps",
    "network": "another network is other work per token",
    "params": "another network is other work per token",
    "active_params": "another network is other work per token",
    "layers": "another network is other work per token",
    "hidden": "another network is other work per token",
    "heads": "another network is other work per token",
    "kv_heads": "another network is other work per token",
    "ffn": "another network is other work per token",
    "vocab": "another network is other work per token",
    "arch": "another network is other work per token",
    "task": "fine-tuning leaves out work that pretraining does",
    "seq": "attention costs more per token in a longer sequence",
    "tokens_are": "padded and masked tokens are work that one of them counts and the other does not",
    "microbatch": "larger kernels run nearer to the peak",
    "global_batch": "a larger batch hides more communication behind more work",
    "tokens_per_step": "a larger batch hides more communication behind more work",
    "dp_replicate": "the layout decides what is communicated",
    "dp_shard": "the layout decides what is communicated",
    "dp": "the layout decides what is communicated",
    "tp": "the layout decides what is communicated",
    "pp": "the layout decides what is communicated",
    "vpp": "the layout decides what is communicated",
    "cp": "the layout decides what is communicated",
    "ep": "the layout decides what is communicated",
    "sharding": "the layout decides what is communicated",
    "sequence_parallel": "the layout decides what is communicated",
    "async_tp": "what is communicated beside compute is not waited for",
    "pp_schedule": "schedules differ in the bubble",
    "cp_method": "attention over several ranks sends other messages at other times",
    "reshard": "parameters let go of after the forward are gathered a second time",
    "prefetch_forward": "what is gathered ahead is not waited for",
    "prefetch_backward": "what is gathered ahead is not waited for",
    "communication": "a control without communication is no training",
    "delay_factor": "a control whose collectives are lengthened is no measurement of the machine",
    "framework": "another program, other kernels and another overlap",
    "framework_version": "versions of one program differ in speed",
    "commit": "another revision of the program may run or time another step",
    "torch": "versions of one library differ in speed",
    "cuda": "versions of one library differ in speed",
    "nccl": "versions choose other algorithms and protocols",
    "driver": "drivers differ in clocks and in speed",
    "python": None,
    "backend": "gloo and NCCL are not the same collectives",
    "compile": "compiled and eager steps launch other kernels",
    "attention": "attention kernels differ in speed",
    "recompute": "recomputation adds a forward pass to each step",
    "loss_chunks": "logits in chunks are other kernels and another peak of memory",
    "grad_clip": "the norm of all gradients is a collective more and stops the optimizer until it is known",
    "threads_per_process": "threads of a process share its work, and the cores",
    "environment": "settings of NCCL choose algorithms, channels and protocols",
    "seed": None,
    "warmup_steps": "a window that begins earlier holds steps that are not steady yet",
    "window": "a window that begins at another step may hold steps that are not steady, and one step is no mean",
    "param_dtype": "the peak and the bytes moved follow the precision",
    "reduce_dtype": "the bytes of the gradient reduction follow the precision",
    "device": "a CPU is no GPU",
    "hardware": "another GPU has other peaks and memory",
    "gpu_name": "variants of one GPU differ in memory and power limit",
    "board_part_number": "another board may have another memory and power limit",
    "vbios": "the firmware sets clocks and power limits",
    "power_limit_w": "the power limit sets the clock under load",
    "sm_clock_mhz": "work goes with the clock, whatever set it",
    "power_cap_share": "clocks fall while the power limit holds",
    "thermal_share": "clocks fall while heat holds them down",
    "straggler": "all ranks wait for the slowest node",
    "cpu": "a CPU does the work, or launches the kernels that do",
    "cores": "processes wait for cores",
    "num_gpus": "the number of GPUs decides what is communicated",
    "gpus_per_node": "fewer GPUs in a node, more traffic between nodes",
    "nodes": "the network between nodes is slower than the links in one",
    "interconnect": "another network, other collectives",
    "site": "another site, another network and other neighbours",
    "placement": "nodes under other switches have another network between them",
    "gpu_uuids": None,
    "oversubscribed": "more processes than cores wait for each other",
    "num_cut_lines": None,
    "power_scope": "a board, a module and a node do not draw the same",
    "memory_kind": "what was handed out and what was held are two quantities",
}
COLLECTIVE_FIELDS: dict[str, str | None] = {
    "source": "two sources count and steady their numbers in their own ways",
    "provenance": "a reading, a table in print and a prediction are different kinds of evidence",
    "outcome": "a sweep that failed has at most its first sizes",
    "collective": "collectives move different amounts of data",
    "message_bytes": "small messages are bound by latency, large ones by bandwidth",
    "num_ranks": "the ring grows with the ranks",
    "nodes": "the network between nodes is slower than the links in one",
    "ranks_per_node": "fewer ranks in a node, more traffic between nodes",
    "num_groups": "groups at once share the links",
    "group_across": "ranks that lie apart reach each other by other links",
    "dtype": "the bytes of an element change the reduction",
    "algorithm": "algorithms differ in latency and in traffic",
    "protocol": "protocols trade latency for bandwidth",
    "channels": "channels share the work among links and multiprocessors",
    "in_place": "in place a rank's own part is not copied",
    "launch": "call by call, a small message takes as long as the host to launch it",
    "iterations_per_lap": "two events around each call cost time of their own",
    "num_wrong": "the time of a wrong result is no measurement",
    "hardware": "another GPU has other links",
    "gpu_name": "variants of one GPU differ in their links",
    "device": "a CPU is no GPU",
    "backend": "gloo and NCCL are not the same collectives",
    "interconnect": "another network, other collectives",
    "placement": "nodes under other switches have another network between them",
    "commit": "another revision of the program may run or time another sweep",
    "nccl": "versions choose other algorithms and protocols",
    "torch": "versions of one library differ in speed",
    "driver": "drivers differ in speed",
    "environment": "settings of NCCL choose algorithms, channels and protocols",
    "cpu": "a CPU does the work of gloo, and launches the kernels of NCCL",
    "cores": "ranks wait for cores",
    "threads_per_process": "threads of a process share its work, and the cores",
    "warmup_iterations": "the first iterations open connections and buffers",
    "oversubscribed": "more processes than cores wait for each other",
    "num_cut_lines": None,
}

# What has to change with the number of GPUs or nodes when the rest is held: not a second difference.
FOLLOWS = {
    "num_gpus": ("nodes", "dp", "dp_replicate", "dp_shard", "gpu_uuids"),
    "nodes": ("num_gpus", "num_ranks", "dp", "dp_replicate", "dp_shard", "gpu_uuids"),
    "num_ranks": ("nodes", "ranks_per_node"),
}
BATCH = ("global_batch", "tokens_per_step")

# As fractions. Clocks of NVIDIA GPUs have steps of 15 MHz (nvidia-smi -q -d SUPPORTED_CLOCKS), so two means a step
# apart in either direction are 1.5 % of 1,980 MHz apart. Tables print 8B for 8.03e9 parameters. Power limits are read
# back in mW, 699.98 for 700.
RELATIVE = {"sm_clock_mhz": 0.015, "params": 0.01, "active_params": 0.01, "power_limit_w": 0.001}
# Throttled clocks stand at most a third below the boost clock where they were seen, so five points more of the time
# are below 2 % of speed, which is what one reading scatters.
SHARE = 0.05
ABSOLUTE = {"power_cap_share": SHARE, "thermal_share": SHARE}

# These change another number than tokens/s, and only where both records have that number.
CONCERNS: dict[str, Concern] = {"power_scope": "energy", "memory_kind": "memory"}
NUMBERS_OF: dict[Concern, tuple[str, ...]] = {
    "speed": (),
    "energy": ("draw_w", "energy_j", "energy_counter_j", "energy_integral_j"),
    "memory": ("memory_bytes",),
}

# Another machine or other work: a ratio over these is no efficiency.
MACHINE = ("device", "hardware", "gpu_name", "board_part_number", "power_limit_w", "interconnect", "site")
WORK = ("network", "params", "active_params", "layers", "hidden", "task", "seq", "tokens_are", "param_dtype")
APART = (*MACHINE, *WORK)

# What makes a larger run faster per GPU than a smaller one, as people call it, the likeliest first. TorchTitan's
# authors named the region and the GPU variant for their 128-GPU row (their issues 394 and 619).
CAUSES = {
    "site": "region",
    "hardware": "GPU variant",
    "gpu_name": "GPU variant",
    "board_part_number": "GPU variant",
    "power_limit_w": "power limit",
    "sm_clock_mhz": "clocks",
    "power_cap_share": "power cap",
    "thermal_share": "heat",
    "straggler": "straggling node",
    "interconnect": "interconnect",
    "placement": "placement",
    "gpus_per_node": "GPUs per node",
    "oversubscribed": "oversubscription",
    "network": "network",
    "params": "network",
    "seq": "sequence",
    "tokens_are": "what counts as a token",
    "microbatch": "microbatch",
    "global_batch": "batch",
    "tokens_per_step": "batch",
    "param_dtype": "precision",
    "reduce_dtype": "precision",
    "recompute": "recomputation",
    "reshard": "resharding",
    "prefetch_forward": "prefetching",
    "prefetch_backward": "prefetching",
    "communication": "a control",
    "delay_factor": "a control",
    "compile": "compilation",
    "attention": "attention kernel",
    "framework": "program",
    "framework_version": "program's version",
    "commit": "program's version",
    "torch": "torch",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "driver": "driver",
    "environment": "NCCL's settings",
    "warmup_steps": "step window",
    "window": "step window",
    "source": "source",
}
