from falloff.bench import nccl_algorithms


def test_only_what_nccl_chose_is_kept_once_and_without_host_and_process(tmp_path):
    debug = tmp_path / "nccl.txt"
    debug.write_text(
        "node-7:311:311 [0] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so.\n"
        "node-7:311:340 [0] NCCL INFO AllGather: 512 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
        "node-7:311:340 [0] NCCL INFO AllGather: 512 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
        "[2026-11-30 01:02:03] node-7:311:340 [0] NCCL INFO ReduceScatter [Symmetric]: 512 Bytes -> Kernel "
        "ReduceScatter_LL nchannels 8 nthreads 512 nWorks 1\n"
    )
    assert nccl_algorithms._said(debug) == [
        "NCCL INFO AllGather: 512 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
        "NCCL INFO ReduceScatter [Symmetric]: 512 Bytes -> Kernel ReduceScatter_LL nchannels 8 nthreads 512 nWorks 1",
    ]


def test_no_file_means_nothing_was_said(tmp_path):
    assert nccl_algorithms._said(tmp_path / "nccl.txt") == []


def test_a_process_that_ends_badly_leaves_its_exit_code(tmp_path):
    reason = nccl_algorithms._run_child(tmp_path, {"PYTHONPATH": "src"}, 60)
    assert reason == "ended with exit code 1"


def test_a_process_that_takes_too_long_is_ended(tmp_path):
    assert nccl_algorithms._run_child(tmp_path, {"PYTHONPATH": "src"}, 0.01) == "not done after 0.01 s"
