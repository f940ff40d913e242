"""FLOPs that people count: model FLOPs and hardware FLOPs by token, and the formulas behind published rates."""

from typing import Literal

import numpy as np

from falloff.perfmodel.jobs import Floats, Jobs

FULL_RECOMPUTE, SELECTIVE_RECOMPUTE = 2.0, 1.0  # as Jobs counts them

# what a published FLOP/s counts: Narayanan et al. 2021, equation 3; 6N and attention over the full square; or over half
Counts = Literal["equation 3", "model", "model, causal"]


def layer_params(jobs: Jobs) -> Floats:
    """Return the parameters of all layers that a token multiplies with [n]; of experts, those that it is routed to."""
    attention = 2 * jobs.hidden * jobs.head_size * (jobs.heads + jobs.kv_heads)
    return jobs.layers * (attention + jobs.active_experts * jobs.mlp_matrices * jobs.hidden * jobs.ffn)


def attention_flops_per_token(jobs: Jobs) -> Floats:
    """Return the forward FLOPs a token of attention's scores and values over the full square [n]: 4 L h s."""
    return 4 * jobs.layers * jobs.heads * jobs.head_size * jobs.seq


def model_flops_per_token(jobs: Jobs) -> Floats:
    """Return the FLOPs that training a token needs [n], as falloff.spec.network counts them: 6 N + 12 L h s."""
    return 6 * (layer_params(jobs) + jobs.hidden * jobs.vocab) + 3 * attention_flops_per_token(jobs)


def hardware_flops_per_token(jobs: Jobs) -> Floats:
    """Return model FLOPs and those of recomputation [n].

    Full recomputation repeats every layer's forward pass; selective that of attention's core alone, as in Korthikanti
    et al. 2022 (arXiv 2205.05198, section 5).
    """
    forward = 2 * layer_params(jobs)
    attention = attention_flops_per_token(jobs)
    full = (jobs.recompute == FULL_RECOMPUTE) * (forward + attention)
    selective = (jobs.recompute == SELECTIVE_RECOMPUTE) * attention
    return np.asarray(model_flops_per_token(jobs) + full + selective, dtype=float)


def counted_flops_per_token(jobs: Jobs, counts: Counts) -> Floats:
    """Return the FLOPs a token that a published rate counts [n].

    Equation 3 of Narayanan et al. 2021 (arXiv 2104.04473): 96 B s l h^2 (1 + s/6h + V/16lh) a step.
    """
    if counts == "equation 3":
        hidden, layers = jobs.hidden, jobs.layers
        bracket = 1 + jobs.seq / (6 * hidden) + jobs.vocab / (16 * layers * hidden)
        return np.asarray(96 * layers * hidden**2 * bracket, dtype=float)
    whole = model_flops_per_token(jobs)
    return whole if counts == "model" else whole - 1.5 * attention_flops_per_token(jobs)
