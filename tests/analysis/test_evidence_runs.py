from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.evidence_runs import tabulate
from falloff.records import RunRecord
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table(records_of: Callable[[str, Any], pd.DataFrame]) -> pd.DataFrame:
    runs = records_of("published-training torchtitan-tables", RunRecord)
    return tabulate(runs, read_all_hardware(ROOT / "config/hardware"))


def test_every_run_has_a_rate_or_a_utilisation_and_is_there_once(table: pd.DataFrame) -> None:
    assert (table[["tokens_per_gpu_s", "reported_mfu", "tflops_share"]] > 0).any(axis=1).all()
    assert table["record_id"].is_unique
    assert set(table["provenance"]) == {"published"}


def test_an_mfu_from_memory_is_none_and_the_tflops_beside_it_stand(table: pd.DataFrame) -> None:
    llama = table[table["source"] == "llama3-paper"]
    assert llama["reported_mfu"].isna().all()
    assert llama["tflops_share"].between(0.38, 0.44).all()


def test_a_series_differs_in_gpus_alone_and_holds_its_batch(table: pd.DataFrame) -> None:
    for name, held in (("weak", "tokens_of_gpu"), ("strong", "tokens_per_step")):
        grouped = table.groupby(f"{name}_series")
        assert (grouped[held].nunique() == 1).all()
        assert (grouped["network"].nunique() == 1).all()
        assert (grouped["num_gpus"].nunique() == grouped[f"{name}_counts"].first()).all()
        assert (grouped["num_gpus"].max() == grouped[f"{name}_most"].first()).all()


def test_a_run_whose_batch_is_not_stated_is_of_no_series(table: pd.DataFrame) -> None:
    blank = table[table["tokens_per_step"].isna()]
    assert len(blank)
    assert blank["weak_series"].isna().all()
    assert (blank["weak_counts"] == 0).all()
