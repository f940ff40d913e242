"""Starts the ranks as torchrun does, and notes in the log of the run in progress which of them a signal ended.

    python -m falloff.bench.agent <torchrun's arguments> -m falloff.bench.worker RUN_DIR [RUN_DIR ...]

Neither a rank that SIGKILL ends nor torchrun's own exit code says so.
"""

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run

from falloff.rawlog import OPEN_NAME, append_event, own_node

# torchelastic ends the ranks that are left with SIGTERM, and with SIGKILL those that are still there 30 s later.
_CLOSING_GRACE_S = 25
# The end of one node's task ends those of all others by SIGKILL (srun --kill-on-bad-exit). The launcher takes less
# than this to hear of the failure and to end them by SIGTERM, upon which ranks say where they are.
_LINGER_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Run the ranks to their end; return 0 where all of them ended well."""
    options = parse_args(list(arguments))  # type: ignore[no-untyped-call]
    if options.standalone and options.local_addr is None:
        # All ranks are here: the host's own name would be looked up in the DNS, which a laptop may not reach.
        options.local_addr = "127.0.0.1"
    try:
        run(options)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        signalled = signalled_ranks(error.failures)
        for run_dir in runs_in_progress(options.training_script_args):
            for rank, number in signalled.items():
                own_rank = own_node() * int(options.nproc_per_node) + error.failures[rank].local_rank
                append_event(run_dir, "rank_signalled", rank=own_rank, signal=number)
        if options.nnodes not in ("1", "1:1"):
            time.sleep(_LINGER_S)
        return 1
    except SignalException as error:
        return 128 + error.sigval
    return 0


def runs_in_progress(arguments: Sequence[str]) -> list[Path]:
    """Return the runs among the ranks' arguments whose log is open: one, or none between two runs."""
    return [Path(argument) for argument in arguments if (Path(argument) / OPEN_NAME).is_file()]


def signalled_ranks(failures: Mapping[int, ProcessFailure]) -> dict[int, int]:
    """Return the signal that ended each rank, without those by which torchelastic itself ended the others.

    `failures` holds the ranks in the order in which torchelastic found them ended.
    """
    first_s = min(failure.timestamp for failure in failures.values())
    found = {}
    for place, (rank, failure) in enumerate(failures.items()):
        closing = failure.exitcode == -signal.SIGTERM and place > 0
        late = failure.timestamp - first_s >= _CLOSING_GRACE_S
        if failure.exitcode < 0 and not closing and not late:
            found[rank] = -failure.exitcode
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
