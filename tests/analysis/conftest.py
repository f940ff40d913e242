from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.ingest.external import read_folder
from falloff.ingest.native import read_native_log
from falloff.records import CollectiveRecord, RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def records_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Any], pd.DataFrame]:
    """Return the records of folders of data/external as the tables get them, by way of Parquet."""
    folder = tmp_path_factory.mktemp("records")

    def read(names: str, kind: Any) -> pd.DataFrame:
        paths = []
        for name in names.split():
            paths.append(folder / f"{name}.{kind.__name__}.parquet")
            if not paths[-1].exists():
                runs, collectives = read_folder(ROOT / "data" / "external" / name, ROOT / "config" / "hardware")
                write_records(folder / f"{name}.RunRecord.parquet", runs, RunRecord)
                write_records(folder / f"{name}.CollectiveRecord.parquet", collectives, CollectiveRecord)
        return read_records(paths, kind)

    return read


@pytest.fixture(scope="session")
def one_h200_runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the records of our runs on one H200: study one_h200's, and the compiled 7B of study h200."""
    known = read_all_hardware(ROOT / "config" / "hardware")
    folders = ("one_h200/llama*", "one_h200/gpt*", "h200/llama2-7b-dp_shard1-*")
    logs = [log for folder in folders for log in sorted((ROOT / "data" / "raw").glob(f"{folder}/*/events.jsonl"))]
    path = tmp_path_factory.mktemp("one_h200") / "runs.parquet"
    write_records(path, [record for log in logs for record in read_native_log(log, known)[0]], RunRecord)
    return read_records([path], RunRecord)
