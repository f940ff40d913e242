"""Records: checked, written whole, read back as they were."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falloff.records import CollectiveRecord, RunRecord, read_records, write_records


def make_run(**changes: Any) -> RunRecord:
    values = {"record_id": "r1", "provenance": "measured", "source": "falloff", "source_ref": "log", "outcome": "ok"}
    return RunRecord(**{**values, **changes})


def make_collective(**changes: Any) -> CollectiveRecord:
    values = {"record_id": "c1", "provenance": "imported", "source": "s", "source_ref": "log", "outcome": "ok"}
    return CollectiveRecord(**{**values, "collective": "all_reduce", "message_bytes": 1024, "num_ranks": 2, **changes})


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = make_run(
        params=8_030_261_248.0,
        num_gpus=2,
        compile=True,
        step_s=(1.0, 2.0),
        rank_step_s=((1.0, 0.9), (2.0, 1.9)),
        losses=(12.3, 11.9),
        gpu_uuids=("GPU-0", "GPU-1"),
        flags=("compile",),
    )
    write_records(tmp_path / "a.parquet", [record], RunRecord)
    row = read_records([tmp_path / "a.parquet"], RunRecord).iloc[0]
    assert row["params"] == 8_030_261_248
    assert bool(row["compile"]) is True
    assert list(row["step_s"]) == [1.0, 2.0]
    assert [list(ranks) for ranks in row["rank_step_s"]] == [[1.0, 0.9], [2.0, 1.9]]
    assert list(row["gpu_uuids"]) == ["GPU-0", "GPU-1"]


def test_what_is_not_stated_comes_back_blank_and_never_as_zero(tmp_path: Path) -> None:
    write_records(tmp_path / "a.parquet", [make_run()], RunRecord)
    row = read_records([tmp_path / "a.parquet"], RunRecord).iloc[0]
    for name in ("params", "num_gpus", "compile", "step_s", "draw_w", "reported_mfu", "network"):
        assert row[name] is None or pd.isna(row[name])


def test_files_are_read_in_the_order_given(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_records(tmp_path / f"{name}.parquet", [make_collective(record_id=name)], CollectiveRecord)
    frame = read_records([tmp_path / "b.parquet", tmp_path / "a.parquet"], CollectiveRecord)
    assert list(frame["record_id"]) == ["b", "a"]


def test_no_records_keep_their_columns(tmp_path: Path) -> None:
    write_records(tmp_path / "none.parquet", [], RunRecord)
    frame = read_records([tmp_path / "none.parquet"], RunRecord)
    assert len(frame) == 0
    assert "step_s" in frame.columns
    assert list(read_records([], RunRecord).columns) == list(frame.columns)


def test_the_same_records_twice_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_records(tmp_path / f"{name}.parquet", [make_run(step_s=(1.0,))], RunRecord)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_records_of_the_other_kind_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_records(tmp_path / "runs.parquet", [make_run()], RunRecord)
    with pytest.raises(ValueError, match=r"runs.parquet: its columns are not those of CollectiveRecord; ingest it"):
        read_records([tmp_path / "runs.parquet"], CollectiveRecord)


def test_columns_of_other_types_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_records(tmp_path / "runs.parquet", [make_run()], RunRecord)
    table = pq.read_table(tmp_path / "runs.parquet")
    index = table.schema.names.index("layers")
    pq.write_table(table.set_column(index, "layers", pa.array(["many"])), tmp_path / "runs.parquet")
    with pytest.raises(ValueError, match=r"runs.parquet: its columns are not of RunRecord's types"):
        read_records([tmp_path / "runs.parquet"], RunRecord)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_a_file_that_is_no_parquet_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad.parquet: not a readable Parquet file"):
        read_records([tmp_path / "bad.parquet"], RunRecord)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent.parquet: not a readable Parquet file"):
        read_records([tmp_path / "absent.parquet"], RunRecord)


@pytest.mark.parametrize("name", ["params", "seq", "num_gpus", "draw_w", "energy_j", "reported_step_s", "memory_bytes"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_quantity_that_is_not_above_zero_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"record r1: {name} must be above zero and finite, found"):
        make_run(**{name: value})


def test_one_bad_step_among_many_is_refused() -> None:
    with pytest.raises(ValueError, match=r"record r1: step_s must be above zero and finite, found 0.0"):
        make_run(step_s=(1.0, 0.0, 1.0))


def test_a_loss_may_be_negative_and_a_trace_may_expose_nothing() -> None:
    record = make_run(losses=(-1.0,), trace_exposed_comm_s=0.0, trace_idle_s=0.0)
    assert record.trace_exposed_comm_s == 0.0


@pytest.mark.parametrize(("name", "value"), [("provenance", "guessed"), ("outcome", "fine")])
def test_a_word_outside_the_list_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"record r1: {name} is '{value}'; allowed: "):
        make_run(**{name: value})


@pytest.mark.parametrize("changes", [{"message_bytes": 0}, {"num_ranks": -2}, {"times_s": (0.1, -0.1)}])
def test_a_collective_of_no_size_or_time_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"record c1: .* must be above zero and finite"):
        make_collective(**changes)
