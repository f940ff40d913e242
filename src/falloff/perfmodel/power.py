"""Watts of a GPU and joules of a token, from the parts of a step.

A GPU draws its idle power all the time, more while products, attention or memory-bound kernels run, and energy by the
byte for what passes its links; what that comes to is cut at the power limit. Waiting draws no more than idling: on our
H200s collectives that were made late on purpose added seconds at 110 to 140 W (docs/lab.md; controls of data/raw/h200).
The step's own seconds already hold what the limit costs (gemm.product_rates), so that nothing is slowed twice.

Every number is from H200s alone (power_runs.py); another GPU's watts scale with its generation's power limit and are
unvalidated (label_of).
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.gemm import REFERENCES
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values, by_name
from falloff.perfmodel.step import Steps
from falloff.perfmodel.traffic import step_traffic

_RUNS = "least squares over our runs on two H200 that stay below the limit, controls among them (data/raw/h200, "
_RUNS += "calibrate_power.py)"

# Draws are shares of the power limit of the generation's full part (gemm.REFERENCES): the same die draws the same watts
# in a part that is cut in power, until its own limit holds it.
PARAMETERS = by_name(
    (
        Parameter(
            name="idle_draw",
            prior=0.174,
            spread=0.15,
            low=0.05,
            high=0.4,
            shared_by="all",
            meaning="draw of a GPU that holds a job and runs nothing, at its boost clock",
            source="119 to 125 W of 700 between loads on our H200s (power.csv); 80 W once the clock has fallen",
        ),
        Parameter(
            name="product_draw",
            prior=1.28,
            spread=0.10,
            low=0.5,
            high=2.0,
            shared_by="all",
            meaning="draw while large products and attention run at the boost clock, were there no limit",
            source=_RUNS + "; instant readings of 790 to 850 W of 700 between two turns of the limiter",
        ),
        Parameter(
            name="memory_draw",
            prior=0.97,
            spread=0.15,
            low=0.3,
            high=1.5,
            shared_by="all",
            meaning="draw while memory-bound kernels run: norms, loss, optimizer, copies",
            source=_RUNS,
        ),
        Parameter(
            name="wire_energy_j_per_byte",
            prior=1.0e-9,
            spread=0.5,
            low=0.05e-9,
            high=4e-9,
            shared_by="all",
            meaning="energy of a byte that a GPU sends by a collective: SMs, memory and links together",
            source=_RUNS + "; the control without communication alone gives 0.7 nJ",
        ),
        Parameter(
            name="limit_share",
            prior=0.989,
            spread=0.02,
            low=0.9,
            high=1.02,
            shared_by="all",
            meaning="mean draw of a GPU that its power limit holds down, of that limit",
            source="689 to 696 W of 700 in every capped run on our H200s (data/raw/h200, energy counter)",
        ),
    )
)

VALIDATED_HARDWARE = ("h200-sxm",)

# bytes that a rank sends for each byte of the call: a ring's (NCCL, doc/PERFORMANCE.md of nccl-tests)
_SENT = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "send_recv": 1.0}


@dataclass(frozen=True, kw_only=True)
class Power:
    """Draws of one GPU's board, [n] each; host, fans and switches are not in it.

    draw_w is the mean over a step, energy_per_token_j what all GPUs take for a token. unlimited_w is what the step
    would draw without a power limit; idle_w, product_w, memory_w and wire_w, its parts, sum to it.
    """

    draw_w: Floats
    energy_per_token_j: Floats
    unlimited_w: Floats
    idle_w: Floats
    product_w: Floats
    memory_w: Floats
    wire_w: Floats
    limit_w: Floats

    @property
    def tokens_per_joule(self) -> Floats:
        """Return the tokens that a joule of all GPUs gives, [n]."""
        return 1 / self.energy_per_token_j


def predict_power(jobs: Jobs, steps: Steps, values: Values | None = None) -> Power:
    """Return the power of predicted steps [n]; values are of PARAMETERS, their priors where left out."""
    known = values or Values(parameters=PARAMETERS)
    parts = draw_parts(jobs, steps, steps.step_s)
    return power_of(jobs, parts, steps.step_s, (steps.bubble_s + steps.imbalance_s) / steps.step_s, known)


@dataclass(frozen=True, kw_only=True)
class DrawParts:
    """What a step's energy is reckoned from, [n] each: shares of its seconds, and B/s that a GPU sends."""

    product: Floats
    memory: Floats
    sent_bytes_s: Floats


def draw_parts(jobs: Jobs, steps: Steps, step_s: Floats) -> DrawParts:
    """Return the shares of step_s seconds in which products and memory-bound kernels run, and the bytes sent a second.

    step_s may be a measured step, longer than the predicted one: what it is longer by is waiting.
    """
    products_s = steps.gemm_s + steps.attention_s
    memory_s = steps.memory_bound_s
    # what is recomputed mixes both as the passes do
    busy_s = products_s + memory_s
    products_s = products_s + steps.recompute_s * products_s / busy_s
    memory_s = memory_s * (1 + steps.recompute_s / busy_s) + steps.optimizer_s
    return DrawParts(product=products_s / step_s, memory=memory_s / step_s, sent_bytes_s=sent_bytes(jobs) / step_s)


def sent_bytes(jobs: Jobs) -> Floats:
    """Return the bytes that one GPU sends in a step by collectives, [n]."""
    total = np.zeros(len(jobs))
    for call in step_traffic(jobs):
        share = np.where(call.ranks > 1, 1.0 if call.kind == "send_recv" else (call.ranks - 1) / call.ranks, 0.0)
        total += _SENT[call.kind] * share * call.message_bytes * call.count
    return total


def power_of(jobs: Jobs, parts: DrawParts, step_s: Floats, bubble: Floats, values: Values) -> Power:
    """Return the power of steps of so many seconds [n]; bubble is the share of a pipeline's waiting in them.

    The limiter averages over some ten milliseconds: waits between layers let the kernels beside them draw more than the
    limit, a pipeline's bubbles last longer and do not. On two H200 a step with 16 % of waiting in collectives draws
    634 W, one with as much in bubbles 648 W while its clock is held down (data/raw/h200).
    """
    full_w = reference_limit_w(jobs)
    idle_w = values.of("idle_draw", jobs) * full_w
    product_w = parts.product * (values.of("product_draw", jobs) * full_w - idle_w)
    memory_w = parts.memory * (values.of("memory_draw", jobs) * full_w - idle_w)
    wire_w = parts.sent_bytes_s * values.of("wire_energy_j_per_byte", jobs)
    unlimited_w = idle_w + product_w + memory_w + wire_w
    limit_w = values.of("limit_share", jobs) * jobs.power_limit_w
    active = np.clip(1 - bubble, 1e-6, 1.0)
    beside_bubbles_w = np.minimum((unlimited_w - (1 - active) * idle_w) / active, limit_w)
    draw_w = np.minimum(active * beside_bubbles_w + (1 - active) * np.minimum(idle_w, limit_w), limit_w)
    tokens_per_gpu_s = jobs.tokens / jobs.gpus / step_s
    return Power(
        draw_w=draw_w,
        energy_per_token_j=draw_w / tokens_per_gpu_s,
        unlimited_w=unlimited_w,
        idle_w=idle_w,
        product_w=product_w,
        memory_w=memory_w,
        wire_w=wire_w,
        limit_w=limit_w,
    )


def reference_limit_w(jobs: Jobs) -> Floats:
    """Return the power limit of each job's generation in its full part, [n]; its own of a generation without one."""
    names, places = jobs.groups["generation"]
    known = np.array([REFERENCES[name].power_w if name in REFERENCES else np.nan for name in names])[places]
    return np.where(np.isfinite(known), known, jobs.power_limit_w)


def label_of(hardware: str) -> str:
    """Return what is to stand beside watts of a GPU type: 'validated ...' for what we have measured, else why not."""
    if hardware in VALIDATED_HARDWARE:
        return "checked on our own H200 runs"
    return f"unvalidated: no {hardware} of ours was metered, draws are scaled from the H200's"
