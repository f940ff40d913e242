"""Seconds of matrix products by their shape: tiles and waves, length of the sum, memory, and the power cap.

A product [m, k] x [k, n] takes the smooth maximum of three times:
- of the tensor cores at the boost clock, by whole waves of tiles over the multiprocessors. Each tile has a prologue and
  an epilogue, which cost as much as PROLOGUE_K more terms of its sums (NVIDIA, Matrix Multiplication Background User's
  Guide, sections on tile and wave quantisation);
- of the same FLOPs at the rate that the power limit lets the chip hold;
- of its operands and result at memory bandwidth.
Idle multiprocessors draw no power, so that a badly quantised product runs at the boost clock and loses less than its
waves say: the maximum, and not the product, of the two effects.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

# Tiles of the kernels that cuBLAS picks (names of kernels in our H200 traces: 256x128, 128x256, 192x192, 320x128; on
# A100 256x128, 128x128, 128x64 and 64x64).
TILES = ((256, 128), (128, 256), (192, 192), (128, 128), (128, 64), (64, 128), (64, 64))
# A tile of tm x tn reads tm + tn operands for tm tn multiplications: smaller tiles wait for shared memory. With 100, a
# tile of 128 x 128 reaches 0.85 of one of 256 x 128, one of 64 x 64 0.53. On an A100 few columns are as slow as whole
# waves of large tiles say (4096 x n x 4096 with n of 768, 1,024, 1,792, 2,048, 3,584: 0.77, 0.46, 0.55, 0.61, 0.65 of
# the peak; MooreThreads/SimuMax, configs/system/a100_pcie.json); 45 of its products are met within 9 % (rms).
TILE_COST = 100.0
_BEST_TILE = 1 / 256 + 1 / 128
# H200, bursts of 5 ms: k of 1,024, 4,096 and 14,336 reach 724, 800 and 828 TFLOP/s (16,384 x 4,096 outputs).
PROLOGUE_K = 180.0
# Between the burst and the sustained rates of our H200 kernels, at k of 1,024 (679 and 607 TFLOP/s) and above (800 and
# 690): a sharp maximum leaves the former uncapped, which it is not.
SHARPNESS = 6
# What a kernel takes beyond its work on the device: its start and the tail of its last wave. H200: two launches in a
# stream are 2.0 us apart at best (kernel launch_device), products of 34 GFLOP lose about 2 us of 44.
KERNEL_S = 2.0e-6
# a sum is split over idle multiprocessors in pieces of at least so many terms
SPLIT_K = 1024.0
# of the data sheet's bandwidth, in large reads (0.91 on the A100 PCIe; SimuMax, a100_pcie.json)
READ_SHARE = 0.90


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A generation's full part: its dense 16-bit peak, power limit, and the share of the peak that bursts reach."""

    peak_flops: float
    power_w: float
    burst: float


# burst: large products in a few milliseconds, before the power limit bites.
REFERENCES = {
    # 83 of 112.7 TFLOP/s on the PCIe part of 250 W (Markidis et al. 2018, arXiv 1803.04014), met by 0.82 and 0.80 here
    "v100": Reference(peak_flops=125.0e12, power_w=300, burst=0.82),
    # 271.2 of 312 at a k of 5,120 (stas00/ml-engineering, compute/accelerator, MAMF of the A100 SXM)
    "a100": Reference(peak_flops=312.0e12, power_w=400, burst=0.90),
    # 828 of 989.4 on our H200 in bursts of 5 ms; 828.6 on a GH200 of 900 W (MAMF)
    "h100": Reference(peak_flops=989.4e12, power_w=700, burst=0.86),
    # 1,745 of 2,250 (MAMF of the B200)
    "b200": Reference(peak_flops=2250.0e12, power_w=1000, burst=0.78),
    # 668 to 785 of 1,307 (MAMF of MI300X and MI325X)
    "mi300": Reference(peak_flops=1307.4e12, power_w=750, burst=0.60),
}
# Sustained rate against power limit: dynamic power grows with the clock's cube where voltage follows it, an exponent of
# 0.33, and with the clock where voltage stays, one of 1. Our H200 gives 0.7: products would draw 1.28 of the limit at
# the boost clock (power.py) and hold 690 of 828 TFLOP/s under it. An A100 of 300 W (PCIe) holds 0.76 to 0.80 of the
# peak as the limit of a smooth maximum (SimuMax), one of 400 W 0.88: 0.4. The exponent is between them.
POWER_EXPONENT = 0.55
# What the chip draws, of its limit, while neither products nor attention run: between the 199 W of 700 of a step that
# waits for its host and the nine tenths and more of memory-bound kernels (H200, docs/lab.md and power.py).
OTHER_DRAW = 0.68

PARAMETERS = (
    Parameter(
        name="gemm_sustained",
        prior=0.68,
        spread=0.12,
        low=0.35,
        high=0.95,
        shared_by="generation",
        meaning="share of the full part's dense peak that large 16-bit products hold under its power limit",
        source="H200: 672 to 722 of 989.4 TFLOP/s in windows of 0.25 s at 700 W, 0.76 as the limit of a smooth "
        "maximum (our kernel table and docs/lab.md); A100: 0.75 on the PCIe part (SimuMax) and MAMF 0.87 in bursts; "
        "V100: Markidis et al. 2018; B200: MAMF 0.78 in bursts, SimuMax 0.49 sustained",
        group_priors={"v100": 0.80, "a100": 0.88, "h100": 0.76, "b200": 0.64, "mi300": 0.52},
        group_spreads={"a100": 0.05, "h100": 0.06},  # of which we have whole tables of products
    ),
    Parameter(
        name="gemm_low_precision",
        prior=0.94,
        spread=0.10,
        low=0.5,
        high=1.1,
        shared_by="generation",
        meaning="the share of their own peak that 8- and 4-bit products reach, over what 16-bit ones reach of theirs",
        source="H200: 1,280 to 1,340 of 1,978.9 TFLOP/s sustained against 690 of 989.4 (our kernel table); "
        "B200: MAMF 3,432 of 4,500 against 1,745 of 2,250",
        group_priors={"b200": 0.97},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What products run at, each [n]: FLOP/s in bursts and sustained, B/s of memory, multiprocessors, bytes a number.

    prologue_k grows with the rate of low precision, since a tile's epilogue stays as long.
    """

    burst_flops: Floats
    sustained_flops: Floats
    read_bandwidth: Floats
    sms: Floats
    operand_bytes: Floats
    prologue_k: Floats


def product_rates(jobs: Jobs, values: Values, *, half: bool = False, duty: Floats | float = 1.0) -> Rates:
    """Return the rates of each job's products; half: of those that stay at 16 bits where the job's are lower.

    duty is the share of the step in which products and attention run: the power limit is of an average, and what is
    not drawn beside them is theirs to draw. On H200 products hold 671, 758 and 764 TFLOP/s at shares of 0.82, 0.57 and
    0.5 of the step (data/raw/h200: llama3-8b-dp_shard2, llama2-7b-dp_shard1, llama2-7b-tp2).
    """
    peak = jobs.peak_half_flops if half else jobs.peak_flops
    low = jobs.is_low_precision & (not half)
    relative = np.where(low, values.of("gemm_low_precision", jobs), 1.0)
    reference_peak, reference_w, burst = _references(jobs)
    # a part that is cut in power holds less than the full part; one that is cut in units is not capped at all
    busy = np.clip(duty, 0.05, 1.0)
    power = (jobs.power_limit_w / reference_w * (1 - OTHER_DRAW * (1 - busy)) / busy) ** POWER_EXPONENT
    sustained = values.of("gemm_sustained", jobs) * reference_peak * power
    return Rates(
        burst_flops=peak * burst * relative,
        sustained_flops=sustained * relative * peak / jobs.peak_half_flops,
        read_bandwidth=jobs.memory_bandwidth * READ_SHARE,
        sms=jobs.sms,
        operand_bytes=np.where(low, 1.0, 2.0),
        prologue_k=PROLOGUE_K * peak / jobs.peak_half_flops,
    )


def gemm_seconds(
    m: Floats, n: Floats, k: Floats, rates: Rates, *, count: Floats | float = 1.0, result_bytes: Floats | float = 2.0
) -> Floats:
    """Return the seconds of `count` products [m, k] x [k, n], started as one kernel; shapes broadcast over [..., n].

    result_bytes counts what is moved for each output: 2 for 16 bits written, 8 where it is added to a float32 buffer.
    """
    flops = 2.0 * m * n * k * count
    busy_s = 2.0 * _tile_terms(m, n, k, rates, count) / rates.burst_flops
    capped_s = flops / rates.sustained_flops
    moved = count * (rates.operand_bytes * k * (m + n) + result_bytes * m * n)
    return _smooth_max(busy_s, capped_s, moved / rates.read_bandwidth) + KERNEL_S


def _tile_terms(m: Floats, n: Floats, k: Floats, rates: Rates, count: Floats | float) -> Floats:
    """Return the multiplications that all multiprocessors could do while the product runs, at the best tile."""
    best: Floats | None = None
    for rows, columns in TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / columns) * count
        split = np.clip(np.floor(rates.sms / tiles), 1.0, np.maximum(1.0, k / SPLIT_K))
        waves = np.ceil(tiles * split / rates.sms)
        cost = (1 + TILE_COST * (1 / rows + 1 / columns)) / (1 + TILE_COST * _BEST_TILE)
        terms = waves * (k / split + rates.prologue_k) * (rows * columns * cost)
        best = terms if best is None else np.minimum(best, terms)
    assert best is not None
    return best * rates.sms


def _smooth_max(*times: Floats) -> Floats:
    total = sum(time**SHARPNESS for time in times)
    return np.asarray(total, dtype=float) ** (1 / SHARPNESS)


def _references(jobs: Jobs) -> tuple[Floats, Floats, Floats]:
    """Return each job's reference peak, power limit and burst share; a generation without one refers to itself."""
    names, places = np.unique(jobs.generation, return_inverse=True)
    known = [REFERENCES.get(str(name)) for name in names]
    is_known = np.array([reference is not None for reference in known])[places]
    peak = np.array([reference.peak_flops if reference else 1.0 for reference in known])[places]
    power = np.array([reference.power_w if reference else 1.0 for reference in known])[places]
    burst = np.array([reference.burst if reference else 0.75 for reference in known])[places]
    return (
        np.where(is_known, peak, jobs.peak_half_flops),
        np.where(is_known, power, jobs.power_limit_w),
        burst,
    )
