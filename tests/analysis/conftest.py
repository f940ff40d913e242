from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.ingest.external import read_folder
from falloff.records import CollectiveRecord, RunRecord, read_records, write_records

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
