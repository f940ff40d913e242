"""Tables of cells in, predictions out: order kept, nothing raises, the file is whole."""

import csv
import itertools
import math
import random
from pathlib import Path

import pytest

from falloff.perfmodel.cell_predictions import (
    COLUMNS,
    PredictedCell,
    predict_cells,
    read_and_predict,
    write_predictions,
)
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.prediction import prior_fit, shipped_fit
from falloff.perfmodel.validate import TABLE

FIT = prior_fit()
GOOD = {
    "cell_id": "good",
    "source": "torchtitan",
    "framework": "torchtitan",
    "gpu": "H100-80GB-SXM",
    "gpus": "64",
    "model": "Llama 3 8B",
    "params_b": "8.03",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn": "14336",
    "vocab": "128256",
    "seq": "8192",
    "global_batch": "64",
    "micro_batch": "1",
    "precision": "bf16",
}
STRANGE = (
    "", " ", "nan", "NaN", "inf", "-inf", "0", "0.0", "-1", "-3.5", "1e400", "1" + "0" * 400, "1e18", "123456789012",
    "true", "text", "é", "½", "１", "1,024", "0x10", "None", "\x00", "a\nb", '"', "💥", "1e-30", "2.5",
)  # fmt: skip


def table(path: Path, rows: list[dict[str, str]], **options: str) -> Path:
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    with path.open("w", newline="", encoding=options.get("encoding", "utf-8")) as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator=options.get("lineterminator", "\n"))
        writer.writeheader()
        writer.writerows(rows)
    return path


def predict_one(**changes: str) -> PredictedCell:
    (found,) = predict_cells([Cell({**GOOD, **changes})], FIT)
    return found


def test_a_good_row_is_predicted_in_whole() -> None:
    found = predict_one()
    assert found.note == ""
    assert found.tokens_per_gpu_s is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.tokens_per_gpu_s < found.high
    assert found.step_s == pytest.approx(64 * 8192 / 64 / found.tokens_per_gpu_s)
    assert found.fits in (True, False)


@pytest.mark.parametrize("column", sorted(GOOD))
def test_no_value_of_a_column_raises_and_each_row_has_a_rate_or_a_note(column: str) -> None:
    rows = predict_cells([Cell({**GOOD, column: value}) for value in STRANGE], FIT)
    assert len(rows) == len(STRANGE)
    for row in rows:
        assert (row.tokens_per_gpu_s is None) == bool(row.note), row
        assert "\n" not in row.note


def test_every_column_may_be_missing() -> None:
    without = [Cell({key: value for key, value in GOOD.items() if key != name}) for name in GOOD]
    found = predict_cells([*without, Cell({})], FIT)
    assert len(found) == len(GOOD) + 1
    assert found[-1].note


def test_a_bad_row_does_not_touch_the_others(tmp_path: Path) -> None:
    rows = [GOOD, {**GOOD, "layers": "1" + "0" * 400}, {**GOOD, "cell_id": "last"}]
    found = read_and_predict(table(tmp_path / "cells.csv", rows), FIT)
    assert [row.cell_id for row in found] == ["good", "good", "last"]
    assert found[0].tokens_per_gpu_s == found[2].tokens_per_gpu_s
    assert found[1].note


def test_the_measured_columns_are_not_read() -> None:
    measured = {"tokens_per_s_per_gpu": "1", "step_time_s": "999", "mfu_published": "0.99", "mem_gb_per_gpu": "1"}
    assert predict_one(**measured) == predict_one()


def test_order_and_ids_are_kept_whatever_they_are(tmp_path: Path) -> None:
    ids = ["b", "a", "", "a", 'with "quotes", commas', "two\nlines", " é "]
    rows = [{**GOOD, "cell_id": name, "gpus": "64" if place % 2 else "none"} for place, name in enumerate(ids)]
    out = tmp_path / "out.csv"
    write_predictions(read_and_predict(table(tmp_path / "cells.csv", rows), FIT), out)
    with out.open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["cell_id"] for row in written] == [name.strip() for name in ids]
    assert tuple(written[0]) == COLUMNS


@pytest.mark.parametrize(
    "options",
    [{"encoding": "utf-8-sig"}, {"lineterminator": "\r\n"}, {"encoding": "utf-8-sig", "lineterminator": "\r\n"}],
)
def test_byte_order_marks_and_windows_line_ends_change_nothing(options: dict[str, str], tmp_path: Path) -> None:
    plain = read_and_predict(table(tmp_path / "plain.csv", [GOOD]), FIT)
    assert read_and_predict(table(tmp_path / "other.csv", [GOOD], **options), FIT) == plain


def test_a_field_beyond_the_csv_modules_limit_spoils_its_own_row_alone(tmp_path: Path) -> None:
    rows = [GOOD, {**GOOD, "note": "x" * 200_000, "gpus": "y" * 200_000}, GOOD]
    found = read_and_predict(table(tmp_path / "cells.csv", rows), FIT)
    assert [bool(row.note) for row in found] == [False, True, False]


def test_rows_shorter_and_longer_than_the_header_are_rows(tmp_path: Path) -> None:
    path = table(tmp_path / "cells.csv", [GOOD])
    path.write_text(path.read_text() + "short\n" + ",".join(["long"] * 99) + "\n")
    assert [row.cell_id for row in read_and_predict(path, FIT)] == ["good", "short", "long"]


def test_a_table_of_a_header_alone_gives_a_header_alone(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(",".join(GOOD) + "\n")
    write_predictions(read_and_predict(path, FIT), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_bytes_that_are_no_text_spoil_no_other_row(tmp_path: Path) -> None:
    path = table(tmp_path / "cells.csv", [GOOD, GOOD])
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1].replace(b"Llama", b"\xff\xfe\x00"), *lines[2:]]))
    found = read_and_predict(path, FIT)
    assert len(found) == 2
    assert not found[1].note


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_and_predict(tmp_path / "none.csv", FIT)


def test_memory_is_of_the_kind_that_the_source_reports() -> None:
    kinds = {source: predict_one(source=source) for source in ("torchtitan", "simumax-b200", "flagperf")}
    assert [found.memory_kind for found in kinds.values()] == ["reserved", "allocated", "device"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not written"):
        write_predictions([], tmp_path / "file" / "out.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_every_published_row_has_a_finite_interval_about_its_prediction_or_a_note() -> None:
    rows = read_and_predict(TABLE, shipped_fit())
    predicted = [row for row in rows if row.step_s is not None]
    assert len(predicted) > 0.9 * len(rows)
    assert all(row.note for row in rows if row.step_s is None)
    for row in predicted:
        assert row.low is not None
        assert row.tokens_per_gpu_s is not None
        assert row.high is not None
        assert 0 < row.low < row.tokens_per_gpu_s < row.high < math.inf


def test_rows_of_spoilt_columns_raise_nothing_and_have_an_interval_or_a_note() -> None:
    cells, rng = read_cells(TABLE), random.Random(5)
    names = sorted({name for cell in cells for name in cell.columns})
    spoilt = []
    for cell in rng.sample(cells, 500):
        columns = dict(cell.columns)
        for name in rng.sample(names, rng.choice((1, 2, 3, 12))):
            columns[name] = rng.choice(("", "0", "-1", "nan", "inf", "1e400", "1e18", "abc", "3", "7", "0.5", "16384"))
        spoilt.append(Cell(columns))
    for row in predict_cells(spoilt, shipped_fit()):
        assert row.note if row.step_s is None else row.low < row.tokens_per_gpu_s < row.high  # type: ignore[operator]


def test_a_row_of_a_source_that_taught_the_model_has_an_interval_of_its_own() -> None:
    cell = next(cell for cell in read_cells(TABLE) if cell.source == "llm-foundry")
    stranger = Cell({**cell.columns, "source": "nobody"})
    seen, unseen = predict_cells([cell, stranger], shipped_fit())
    assert seen.tokens_per_gpu_s == unseen.tokens_per_gpu_s
    assert seen.high / seen.low < unseen.high / unseen.low  # type: ignore[operator]
