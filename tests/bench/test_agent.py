import signal

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from falloff import rawlog
from falloff.bench.agent import runs_in_progress, signalled_ranks


def failure(exit_code: int, time_s: int = 100) -> ProcessFailure:
    found = ProcessFailure(local_rank=0, pid=1, exitcode=exit_code, error_file="<N/A>")
    found.timestamp = time_s
    return found


@pytest.mark.parametrize(
    ("failures", "signalled"),
    [
        ({1: failure(-signal.SIGKILL), 0: failure(-signal.SIGTERM)}, {1: 9}),
        ({1: failure(1), 0: failure(-signal.SIGTERM)}, {}),
        ({0: failure(1), 1: failure(-signal.SIGKILL)}, {1: 9}),
        ({2: failure(-signal.SIGSEGV), 0: failure(-signal.SIGBUS)}, {2: 11, 0: 7}),
        # somebody's own SIGTERM comes first
        ({1: failure(-signal.SIGTERM), 0: failure(-signal.SIGTERM)}, {1: 15}),
        # stuck after SIGTERM, torchelastic ends it by SIGKILL 30 s later
        ({1: failure(1), 0: failure(-signal.SIGKILL, 130)}, {}),
        ({0: failure(1)}, {}),
    ],
)
def test_a_rank_that_the_agent_itself_ended_counts_as_no_cause(failures, signalled):
    assert signalled_ranks(failures) == signalled


def test_a_signal_is_noted_in_the_run_in_progress_alone(tmp_path):
    done, going, later = (tmp_path / name for name in ("done", "going", "later"))
    for folder in (done, going):
        folder.mkdir()
        rawlog.append_event(folder, "run_started")
    rawlog.seal(done)
    assert runs_in_progress([str(done), str(going), str(later)]) == [going]
    assert runs_in_progress([str(done)]) == []
