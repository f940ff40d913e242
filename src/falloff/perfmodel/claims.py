"""What the model says of the study's claims C1, C2, C3 and C10, with nothing fitted to any of them.

The workload is the study's: Llama 2 7B under FSDP over all ranks, a local batch of 2 sequences of 4,096 tokens, no
recomputation (arXiv 2411.13055). Its training cells are not among those that calibrate the model.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import Floats, stack
from falloff.perfmodel.power import label_of
from falloff.perfmodel.prediction import Prediction, predict, prior_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.perfmodel.step import Steps
from falloff.spec.cluster import find_cluster

_GPUS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_FROM, _TO = 128, 2048  # between which C1 and C2 are stated
_H100, _A100 = "h100-sxm-ib400", "a100-80gb-sxm-ib200"


@dataclass(frozen=True)
class Claim:
    """One number of a claim: what is stated, what the model says with its 90 % interval where it has one, in unit.

    by_priors is what it says before any calibration: the distance from ours is what other people's runs teach.
    """

    claim: str
    what: str
    stated: float | None
    ours: float
    unit: str
    low: float | None = None
    high: float | None = None
    remark: str = ""
    by_priors: float | None = None


def claims(fit: Fit) -> list[Claim]:
    """Return the claims' numbers beside what a fit predicts, and what the priors alone do."""
    before = (one.ours for one in _claims(prior_fit()))
    return [dataclasses.replace(one, by_priors=prior) for one, prior in zip(_claims(fit), before, strict=True)]


def _claims(fit: Fit) -> list[Claim]:
    h100, a100 = (_series(name, fit) for name in (_H100, _A100))
    return [*_loss(h100), *_power(h100), *_crossover(h100), *_generations(h100, a100)]


def _series(cluster: str, fit: Fit) -> Prediction:
    def job(gpus: int) -> Request:
        return Request(
            shape=shape_by_name("llama2-7b"),
            cluster=find_cluster(cluster),
            layout=parse_layout(f"dp_shard={gpus}", gpus),
            seq=4096,
            local_batch=2,
        )

    return predict(stack([job_of_request(job(gpus)) for gpus in _GPUS]), fit)


def _change(values: Floats) -> float:
    """Return the change from 128 to 2,048 GPUs, in per cent."""
    return 100 * float(values[_GPUS.index(_TO)] / values[_GPUS.index(_FROM)] - 1)


def _loss(made: Prediction) -> list[Claim]:
    tokens = made.tokens_per_gpu_s
    falls = bool((np.diff(tokens) < 0).all())
    return [
        Claim(
            "C1",
            "tokens/s per GPU, 128 to 2,048 H100",
            -37.22,
            _change(tokens),
            "%",
            remark=f"falls {'at every' if falls else 'not at every'} doubling from 8 on, from {tokens[0]:,.0f} to "
            f"{tokens[-1]:,.0f}",
        )
    ]


def _power(made: Prediction) -> list[Claim]:
    watts, joules = made.power.draw_w, made.power.energy_per_token_j
    ends = [float(watts[_GPUS.index(gpus)]) for gpus in (_FROM, _TO)]
    remark = f"{ends[0]:.0f} to {ends[1]:.0f} W; {label_of(find_cluster(_H100).gpu.name)}"
    return [
        Claim("C2", "W per GPU, 128 to 2,048 H100", -5.87, _change(watts), "%", remark=remark),
        Claim("C2", "tokens per joule, 128 to 2,048 H100", -33.3, _change(1 / joules), "%"),
    ]


def _crossover(made: Prediction) -> list[Claim]:
    steps = made.steps
    found = []
    for name, seconds in (("transfer", steps.transfer_s), ("residency", residency_s(steps))):
        ratio = seconds / busy_s(steps)
        crossing = _crossing(ratio)
        at = float(ratio[_GPUS.index(_FROM)])
        words = f"{at:.2f} of compute at {_FROM}, {ratio[-1]:.2f} at {_TO:,}"
        found.append(
            Claim("C3", f"GPUs beyond which collectives exceed compute, {name}", 128, crossing, "GPUs", remark=words)
        )
    return found


def busy_s(steps: Steps) -> Floats:
    """Return the seconds in which compute kernels run [n], those by which communication slows them included."""
    return steps.compute_s - steps.launch_s + steps.data_parallel.slowed_s


def residency_s(steps: Steps) -> Floats:
    """Return the seconds in which kernels of collectives stand on the GPU [n]: transfer, and waiting for late peers.

    The mean rank comes early by what the slowest GPU and the step's jitter cost, and waits within its collectives.
    """
    return steps.transfer_s + steps.slowest_gpu_s + steps.jitter_s


def _crossing(ratio: Floats) -> float:
    """Return the GPUs at which a ratio passes 1, between counts on a logarithmic axis; NaN where it never does."""
    above = np.flatnonzero(ratio > 1)
    if not len(above):
        return float("nan")
    place = int(above[0])
    if place == 0:
        return float(_GPUS[0])
    ends = np.log(ratio[place - 1 : place + 1])
    share = -ends[0] / (ends[1] - ends[0])
    return float(_GPUS[place - 1] * (_GPUS[place] / _GPUS[place - 1]) ** share)


def _generations(h100: Prediction, a100: Prediction) -> list[Claim]:
    stated = {"A100": 59.67, "H100": 40.77}
    lower = (h100.mfu < a100.mfu).all()
    words = f"H100 is {'below A100 at every' if lower else 'not below A100 at every'} count from 8 to 2,048"
    place = _GPUS.index(_FROM)
    found = []
    for name, made in (("A100", a100), ("H100", h100)):
        scale = made.mfu[place] / made.tokens_per_gpu_s[place]
        found.append(
            Claim(
                "C10",
                f"MFU of 7B FSDP on {_FROM} {name}",
                stated[name],
                100 * float(made.mfu[place]),
                "%",
                100 * float(made.low[place] * scale),
                100 * float(made.high[place] * scale),
                remark=words if name == "H100" else "the stated scale is not known; ours is at 128",
            )
        )
    ratio = 100 * float(h100.mfu[place] / a100.mfu[place] - 1)
    found.append(Claim("C10", "MFU, from A100 to H100", 100 * (40.77 / 59.67 - 1), ratio, "%"))
    return found
