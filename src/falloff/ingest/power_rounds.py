"""Several GPUs in one column: `nvidia-smi --query-gpu` prints a row a GPU, and names none unless it is asked to."""

import dataclasses

import numpy as np
import numpy.typing as npt

from falloff.ingest.power_samples import Floats, PowerLog, Samples

MOST_GPUS = 16  # of the largest nodes
# nvidia-smi prints the rows of one round within milliseconds, which its stamps have
_LONGEST_WITHIN = 0.4
_FEWEST_ROUNDS = 5
_WHOLE_ROUNDS_SHARE = 0.95
_BY_SAMPLE = ("time_s", "draw_w", "energy_j", "clock_reasons", "sm_clock_mhz", "processes", "limit_w")


def split_rounds(log: PowerLog) -> PowerLog:
    """Return the log with the rows of several GPUs apart where no column tells them, by their places in each round.

    In a file of eight GPUs without an index or UUID each eighth row is one GPU's; read as one they would be a GPU that
    draws the mean of all. Rounds with a row too many or too few are left out. Rows that come one by one stay.
    """
    if list(log.devices) != ["0"] or (samples := log.devices["0"]).uuid or samples.index not in (None, "0"):
        return log
    found = _rounds(samples.time_s)
    if found is None:
        return log
    num_gpus, places = found
    devices = {str(gpu): _only(samples, places == gpu, str(gpu)) for gpu in range(num_gpus)}
    note = f"its rows come {num_gpus} at a time, those of {num_gpus} GPUs that it does not name; told by their order"
    return dataclasses.replace(log, devices=devices, notes=(*log.notes, note))


def _rounds(time_s: Floats) -> tuple[int, npt.NDArray[np.int64]] | None:
    """Return how many rows make a round and the place of each row in its own, -1 in odd rounds; None for one by one."""
    if len(time_s) < 2 * _FEWEST_ROUNDS or not np.isfinite(time_s).all() or (time_s % 1 == 0).all():
        return None
    gaps = np.diff(time_s)
    for size in range(2, MOST_GPUS + 1):
        period_s = np.median(time_s[size:] - time_s[:-size]) if len(time_s) > size else 0.0
        begins = np.concatenate(([0], np.flatnonzero(gaps > _LONGEST_WITHIN * period_s) + 1))
        sizes = np.diff(np.append(begins, len(time_s)))
        if len(sizes) >= _FEWEST_ROUNDS and (sizes == size).mean() >= _WHOLE_ROUNDS_SHARE:
            places = np.arange(len(time_s)) - np.repeat(begins, sizes)
            places[np.repeat(sizes, sizes) != size] = -1
            return size, places
    return None


def _only(samples: Samples, which: npt.NDArray[np.bool_], index: str) -> Samples:
    return dataclasses.replace(samples, index=index, **{name: getattr(samples, name)[which] for name in _BY_SAMPLE})
