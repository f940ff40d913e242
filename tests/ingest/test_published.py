import collections
import logging
import re
import shutil
from pathlib import Path

import pytest

from falloff.ingest.published import (
    BATCH_MISMATCH,
    INFERRED,
    UNVERIFIED,
    read_allreduce_readoff,
    read_collectives,
    read_torchtitan_tables,
    read_training_cells,
)
from falloff.records import CollectiveRecord, RunRecord
from falloff.spec.reading import read_yaml

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"
NETWORKS = ROOT / "config" / "models"
FOLDERS = ("published-training", "published-collectives", "torchtitan-tables", "nccl-allreduce-readoff")


@pytest.fixture(scope="module")
def cells() -> list[RunRecord]:
    return read_training_cells(EXTERNAL / "published-training" / "training_cells.csv", HARDWARE)


@pytest.fixture(scope="module")
def collectives() -> list[CollectiveRecord]:
    return read_collectives(EXTERNAL / "published-collectives" / "collectives.csv", HARDWARE)


@pytest.fixture(scope="module")
def torchtitan() -> list[RunRecord]:
    return read_torchtitan_tables(EXTERNAL / "torchtitan-tables" / "torchtitan_tables.csv", HARDWARE, NETWORKS)


@pytest.fixture(scope="module")
def readoff() -> list[CollectiveRecord]:
    return read_allreduce_readoff(EXTERNAL / "nccl-allreduce-readoff" / "nccl_allreduce_readoff.csv", HARDWARE)


def with_changed_line(tmp_path: Path, line: int, old: str, new: str) -> Path:
    """Return a copy of the training table with one change in one of its first lines, its sources beside it."""
    source = EXTERNAL / "published-training"
    lines = (source / "training_cells.csv").read_text(encoding="utf-8").splitlines()[:6]
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    table = tmp_path / "training_cells.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(source / "sources.yaml", tmp_path)
    return table


def test_every_row_of_the_training_table_is_a_record(cells: list[RunRecord]) -> None:
    assert len(cells) == 4638
    assert len({cell.record_id for cell in cells}) == 4638
    assert len({cell.source for cell in cells}) == 38
    assert {cell.provenance for cell in cells} == {"published"}


def test_units_become_si_and_fractions(cells: list[RunRecord]) -> None:
    cell = next(cell for cell in cells if cell.record_id == "ultrascale-playbook-0001")
    assert cell.params == pytest.approx(1.342e9)
    assert cell.memory_bytes == pytest.approx(50.2e9)
    assert cell.reported_mfu == 0.392
    assert cell.reported_tokens_per_gpu_s == 40150
    assert (cell.hardware, cell.gpu_name, cell.num_gpus) == ("h100-sxm", "H100-80GB-SXM", 8)
    assert (cell.param_dtype, cell.sequence_parallel, cell.tokens_per_step) == ("bfloat16", False, 1048576)


def test_a_blank_is_not_stated_and_never_zero(cells: list[RunRecord]) -> None:
    playbook = [cell for cell in cells if cell.source == "ultrascale-playbook"]
    assert {cell.recompute for cell in playbook} == {None}
    assert {cell.compile for cell in playbook} == {None}
    assert all(cell.reported_mfu != 0 for cell in cells)


def test_out_of_memory_is_an_outcome_and_is_told_apart_from_a_crash_only_where_the_source_does(
    cells: list[RunRecord],
) -> None:
    outcomes = collections.Counter(cell.outcome for cell in cells)
    assert outcomes == {"ok": 3504, "crash_or_oom": 1123, "oom": 11}
    assert {cell.source for cell in cells if cell.outcome == "crash_or_oom"} == {"ultrascale-playbook"}


def test_a_run_that_had_a_rate_before_it_ran_out_of_memory_keeps_it(tmp_path: Path) -> None:
    table = with_changed_line(tmp_path, 2, ',1007,408,0.4125,,,,,"section', ',1007,408,0.4125,,,,1,"section')
    record = read_training_cells(table, HARDWARE)[0]
    assert (record.outcome, record.reported_tokens_per_gpu_s) == ("oom", 1007)


def test_a_gpu_whose_memory_is_not_stated_has_no_hardware(cells: list[RunRecord]) -> None:
    by_gpu = {cell.gpu_name: cell.hardware for cell in cells}
    assert by_gpu["A100-SXM"] is None
    assert by_gpu["H100 (three clusters)"] is None
    assert by_gpu["unstated"] is None
    assert by_gpu["A100-80GB-SXM"] == "a100-80gb-sxm"
    assert by_gpu["H100-96GB-HBM2e-SXM (500W)"] == "h100-96gb-500w"


def test_a_tied_embedding_is_no_lookup_and_an_untied_one_is(cells: list[RunRecord]) -> None:
    by_id = {cell.record_id: cell for cell in cells}
    assert by_id["ultrascale-playbook-0001"].embedding_params == 0  # 1B, tied
    best_8b = next(cell for cell in cells if cell.network == "nanotron-Llama-8B")
    assert best_8b.embedding_params == 131072 * 4096
    assert {cell.embedding_params for cell in cells if cell.source == "libai"} == {None}


def test_rows_resting_on_memory_are_flagged(cells: list[RunRecord]) -> None:
    flagged = {cell.source for cell in cells if any(flag.startswith(UNVERIFIED) for flag in cell.flags or ())}
    assert flagged == {"korthikanti2022", "opt-paper", "gpt-neox-paper", "llama3-paper", "mt-nlg-530b"}


def test_a_batch_that_does_not_multiply_up_is_flagged(cells: list[RunRecord]) -> None:
    flagged = [cell for cell in cells if any(flag.startswith(BATCH_MISMATCH) for flag in cell.flags or ())]
    assert len(flagged) == 12
    assert {cell.source for cell in flagged} == {"ultrascale-playbook"}


def test_each_record_carries_the_licence_of_its_source(
    cells: list[RunRecord], collectives: list[CollectiveRecord]
) -> None:
    for record in (*cells, *collectives):
        assert record.licence
        assert (record.licence == "CC BY-SA 4.0") == (record.source == "ml-engineering")


def test_the_words_about_sources_and_the_sources_of_the_reader_agree() -> None:
    for folder in FOLDERS:
        words = (EXTERNAL / folder / "SOURCE.md").read_text(encoding="utf-8")
        entries = dict(re.findall(r"^## (.+?)\n\n(.+?)(?=\n\n|\Z)", words, flags=re.MULTILINE | re.DOTALL))
        sources = read_yaml(EXTERNAL / folder / "sources.yaml")
        assert list(entries) == list(sources)
        for key, source in sources.items():
            assert f"- licence: {source['licence']}\n" in entries[key]
            assert f"- address: {source['address']}\n" in entries[key]
            assert ("unverified" in entries[key]) == ("unverified" in source)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (",512,8,", ",many,8,", r"line 2: gpus: a whole number or a blank is needed, found 'many'"),
        (",512,8,", ",0,8,", r"line 2: record llm-foundry-0001: num_gpus must be above zero and finite, found 0"),
        (",1007,", ",-1007,", r"line 2: tokens_per_s_per_gpu: a number from 0 on or a blank is needed, found '-1007'"),
        (",1007,", ",nan,", r"line 2: tokens_per_s_per_gpu: a number from 0 on or a blank is needed, found 'nan'"),
        (",1007,", ",1007,1,", r"line 2: 51 values found, 50 are needed"),
        (",bf16,", ",bf61,", r"line 2: precision is 'bf61'; allowed: bf16, fp16"),
        (",llm-foundry,", ",llm-fundry,", r"line 2: source 'llm-fundry' has no entry in sources.yaml"),
        (',,,,,"section', ',,,,maybe,"section', r"line 2: oom is 'maybe'; allowed: '', '0', '1', 'crash_or_oom'"),
        ("llm-foundry-0001", "llm-foundry-0002", r"line 3: cell 'llm-foundry-0002' is stated twice, first in line 2"),
    ],
)
def test_a_garbled_row_is_an_error_that_names_file_and_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    table = with_changed_line(tmp_path, 2, old, new)
    with pytest.raises(ValueError, match=rf"training_cells\.csv: {sentence}"):
        read_training_cells(table, HARDWARE)


def test_another_table_is_refused_by_its_columns(tmp_path: Path) -> None:
    table = with_changed_line(tmp_path, 1, ",gpus,", ",gpu_count,")
    with pytest.raises(ValueError, match=r"line 1: its columns are not those of this table: gpu_count, gpus"):
        read_training_cells(table, HARDWARE)


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    table = with_changed_line(tmp_path, 2, "llm", "llm")
    table.write_text(table.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a table with at least one row is needed, found none"):
        read_training_cells(table, HARDWARE)


def test_collectives_without_ranks_or_size_are_left_out_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        records = read_collectives(EXTERNAL / "published-collectives" / "collectives.csv", HARDWARE)
    assert len(records) == 2325 - 40
    assert "40 rows state no GPUs or no size and are left out" in caplog.text


def test_a_bandwidth_rounded_to_nothing_is_not_zero(collectives: list[CollectiveRecord]) -> None:
    assert all(record.reported_busbw_bytes_s != 0 for record in collectives)
    small = next(record for record in collectives if record.source == "aws-nccl" and record.message_bytes == 8)
    assert small.reported_busbw_bytes_s is None
    assert small.times_s == pytest.approx((164.3e-6,))


def test_the_sweeps_of_aws_stand_each_under_one_gpu(collectives: list[CollectiveRecord]) -> None:
    aws = [record for record in collectives if record.source == "aws-nccl"]
    times = {
        gpu: {(r.message_bytes, r.times_s) for r in aws if r.hardware == gpu} for gpu in ("a100-80gb-sxm", "h100-sxm")
    }
    assert {gpu: len(found) for gpu, found in times.items()} == {"a100-80gb-sxm": 29, "h100-sxm": 38}
    assert times["a100-80gb-sxm"].isdisjoint(times["h100-sxm"])


def test_collectives_are_named_alike_in_every_source(collectives: list[CollectiveRecord]) -> None:
    found = {record.collective for record in collectives}
    assert found == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}


def test_a_point_hidden_behind_a_curve_has_no_bandwidth(readoff: list[CollectiveRecord]) -> None:
    assert len(readoff) == 88
    hidden = [point for point in readoff if point.reported_busbw_bytes_s is None]
    assert len(hidden) == 20
    first = readoff[0]
    assert (first.nodes, first.num_ranks, first.message_bytes) == (4, 32, 16 * 2**20)
    assert first.reported_busbw_bytes_s == 114e9
    assert all("bus bandwidth likely, not stated" in (point.flags or ()) for point in readoff)


def test_the_row_whose_number_nobody_knows_has_none(torchtitan: list[RunRecord]) -> None:
    (unknown,) = [row for row in torchtitan if row.reported_tokens_per_gpu_s is None]
    assert (unknown.source, unknown.num_gpus, unknown.compile) == ("TorchTitan, arXiv v1", 128, True)
    assert "the number is not known" in (unknown.flags or ())


def test_a_technique_that_the_next_row_adds_is_off_in_this_one(torchtitan: list[RunRecord]) -> None:
    first, second, third = torchtitan[:3]
    assert [row.compile for row in (first, second, third)] == [False, True, True]
    assert [row.param_dtype for row in (first, second, third)] == ["bfloat16", "bfloat16", "float8"]
    docs = [row for row in torchtitan if row.source == "TorchTitan docs 2024-08"]
    assert {row.compile for row in docs} == {None}


def test_what_a_report_states_once_joins_each_of_its_rows(torchtitan: list[RunRecord]) -> None:
    report = [row for row in torchtitan if row.source == "TorchTitan report 2024-12"]
    assert len(report) == 18
    assert {row.power_limit_w for row in report} == {500.0}
    assert all(row.torch and row.interconnect for row in report)


def test_what_a_source_does_not_state_is_flagged_as_inferred(torchtitan: list[RunRecord]) -> None:
    first = torchtitan[0]
    inferred = {flag.partition(": ")[2].partition(",")[0] for flag in first.flags or () if flag.startswith(INFERRED)}
    assert (first.source, first.power_limit_w) == ("TorchTitan, ICLR 2025", None)
    assert inferred == {"gpu_name", "seq", "param_dtype"}
    async_tp = next(row for row in torchtitan if row.source == "TorchTitan AsyncTP 2025-06")
    assert async_tp.flags == (f"{INFERRED}: global_batch, local batch times FSDP ranks",)


def test_a_misspelt_fact_about_a_source_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(EXTERNAL / "torchtitan-tables", tmp_path, dirs_exist_ok=True)
    sources = tmp_path / "sources.yaml"
    sources.write_text(sources.read_text(encoding="utf-8").replace("power_limit_w", "power_limit"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"states: unknown key 'power_limit' \(did you mean 'power_limit_w'\?\)"):
        read_torchtitan_tables(tmp_path / "torchtitan_tables.csv", HARDWARE, NETWORKS)
