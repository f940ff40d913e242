"""Time, energy and dollars of a whole training: to so many tokens, and to a loss.

The loss of N parameters on D tokens is L(N, D) = E + A / N^alpha + B / D^beta (arXiv 2203.15556, equation 10). A batch
near or above the critical one makes less of each token: D (1 + batch / B_crit(L)) tokens are needed in place of D
(arXiv 2001.08361, equations 5.1 to 5.5), D being those that a batch far below it needs.
"""

import math

from falloff.spec.assumptions import CriticalBatch, LossLaw


def loss_of(law: LossLaw, params: float, tokens: float) -> float:
    """Return the loss, nats a token, of so many parameters after so many tokens."""
    return float(law.E + law.A / params**law.alpha + law.B / tokens**law.beta)


def tokens_to(law: LossLaw, params: float, loss: float) -> float:
    """Return the tokens after which a network reaches a loss; infinity where it never does, however long it trains."""
    left = loss - law.E - law.A / params**law.alpha
    return float((law.B / left) ** (1 / law.beta)) if left > 0 else math.inf


def batch_penalty(critical: CriticalBatch, loss: float, batch_tokens: float) -> float:
    """Return by how many times more tokens a loss takes at a batch than at a far smaller one: 1 + B / B_crit(L)."""
    return 1 + batch_tokens / critical.tokens_at(loss)


def usd_per_token(tokens_per_gpu_s: float, usd_h: float) -> float:
    """Return dollars a token at a rate per GPU and a price of an hour of one."""
    return usd_h / 3600.0 / tokens_per_gpu_s
