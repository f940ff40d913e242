from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.tables import write_tables

TABLE = pd.DataFrame({"x": [8, 16], "y": [1.0, 1.9]})
COVERAGE = pd.DataFrame({"figure": ["f"], "status": ["measured"]})


def test_a_figure_has_a_table_and_its_coverage(tmp_path: Path) -> None:
    write_tables((TABLE, COVERAGE), tmp_path / "f.parquet", tmp_path / "f.coverage.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), TABLE)
    assert pd.read_parquet(tmp_path / "f.coverage.parquet")["status"].tolist() == ["measured"]


def test_a_table_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file"):
        write_tables((TABLE, COVERAGE), tmp_path / "file" / "f.parquet", tmp_path / "f.coverage.parquet")
