import dataclasses
import math
import shutil
from pathlib import Path

import pytest

from falloff.analysis.efficiency import mfu
from falloff.ingest.published import INFERRED
from falloff.ingest.torchtitan_facts import FLOAT8_FLAG, FLOAT8_LINEAR
from falloff.ingest.torchtitan_tables import read_torchtitan_tables
from falloff.records import RunRecord
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"
NETWORKS = ROOT / "config" / "models"


@pytest.fixture(scope="module")
def torchtitan() -> list[RunRecord]:
    return read_torchtitan_tables(EXTERNAL / "torchtitan-tables" / "torchtitan_tables.csv", HARDWARE, NETWORKS)


def test_the_row_whose_number_nobody_knows_has_none(torchtitan: list[RunRecord]) -> None:
    (unknown,) = [row for row in torchtitan if row.reported_tokens_per_gpu_s is None]
    assert (unknown.source, unknown.num_gpus, unknown.compile) == ("TorchTitan, arXiv v1", 128, True)
    assert "the number is not known" in (unknown.flags or ())


def test_a_technique_that_the_next_row_adds_is_off_in_this_one(torchtitan: list[RunRecord]) -> None:
    first, second, third = torchtitan[:3]
    assert [row.compile for row in (first, second, third)] == [False, True, True]
    assert [row.param_dtype for row in (first, second, third)] == ["bfloat16", "bfloat16", FLOAT8_LINEAR]
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


def test_float8_in_linear_layers_has_no_mfu(torchtitan: list[RunRecord]) -> None:
    known = read_all_hardware(HARDWARE)
    float8 = [row for row in torchtitan if row.param_dtype == FLOAT8_LINEAR]
    assert len(float8) == 42
    assert all(FLOAT8_FLAG in (row.flags or ()) for row in float8)
    assert all(math.isnan(mfu(dataclasses.asdict(row), known)) for row in float8)
    first = next(row for row in torchtitan if row.network == "Llama 3.1 8B" and row.param_dtype == "bfloat16")
    assert 0.2 < mfu(dataclasses.asdict(first), known) < 0.6


def test_a_row_that_is_stated_twice_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(EXTERNAL / "torchtitan-tables", tmp_path, dirs_exist_ok=True)
    table = tmp_path / "torchtitan_tables.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    assert ",6258," in lines[1]
    table.write_text("\n".join([*lines, lines[1].replace(",6258,", ",5258,")]), encoding="utf-8")
    words = r"line 59: the cell of source 'TorchTitan paper .* is stated twice, first in line 2$"
    with pytest.raises(ValueError, match=words):
        read_torchtitan_tables(table, HARDWARE, NETWORKS)
