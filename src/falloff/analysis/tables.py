"""The two files of a figure: its tidy table, and the coverage of its grid."""

from pathlib import Path

import pandas as pd

from falloff.outputs import whole_file


def write_tables(frames: tuple[pd.DataFrame, pd.DataFrame], table: Path, coverage: Path) -> None:
    """Write a figure's table and coverage as Parquet to the two paths, each whole or not at all."""
    for path, frame in zip((table, coverage), frames, strict=True):
        with whole_file(path) as temporary:
            frame.to_parquet(temporary, index=False)
