import collections
import shutil
from pathlib import Path

import pytest

from falloff.ingest.published import UNVERIFIED
from falloff.ingest.training_cells import BATCH_MISMATCH, read_training_cells
from falloff.records import RunRecord

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"


@pytest.fixture(scope="module")
def cells() -> list[RunRecord]:
    return read_training_cells(EXTERNAL / "published-training" / "training_cells.csv", HARDWARE)


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


def test_a_share_of_the_peak_with_recomputation_stands_apart_from_mfu(cells: list[RunRecord]) -> None:
    cell = next(cell for cell in cells if cell.record_id == "llm-foundry-0001")
    assert (cell.reported_mfu, cell.reported_hfu) == (0.4125, 0.55)
    assert sum(cell.reported_hfu is not None for cell in cells) == 183


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
        (
            "llm-foundry-0001",
            "llm-foundry-0002",
            r"line 3: the cell of cell_id 'llm-foundry-0002' is stated twice, first in line 2",
        ),
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


def test_torchtitans_float8_is_in_linear_layers_alone(cells: list[RunRecord]) -> None:
    narrow = {(cell.framework, cell.param_dtype) for cell in cells if (cell.param_dtype or "").startswith("float8")}
    assert ("torchtitan", "float8 in linear layers") in narrow
    assert ("torchtitan", "float8") not in narrow
