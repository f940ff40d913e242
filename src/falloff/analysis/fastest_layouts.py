"""A network's fastest layouts at one batch on ever more GPUs, by search, as one prediction."""

from collections.abc import Sequence

from falloff.analysis.model_points import job
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import Jobs, joined
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.search import Question, search

MOST_TP = 8  # within a node


def fastest_layouts(
    network: str, cluster: str, gpus: Sequence[int], *, global_batch: int, seq: int, fit: Fit
) -> Prediction:
    """Return the fastest layout that fits at each count that can hold a network at a batch of so many sequences.

    By TorchTitan's habits, not compiled, without interleaved stages. ValueError where no count can hold it.
    """
    base = job(network, cluster, 1, seq=seq, local_batch=global_batch)
    best: list[Jobs] = []
    for count in gpus:
        question = Question(
            job=base, gpus=count, global_batch=global_batch, most_tp=MOST_TP, virtual_stages=(), reshards=True
        )
        found = search(question, fit)
        if len(found.order):
            best.append(found.jobs.take(found.order[:1]))
    if not best:
        raise ValueError(f"{network} fits on none of {', '.join(map(str, gpus))} GPUs at a batch of {global_batch}")
    return predict(joined(*best), fit)
