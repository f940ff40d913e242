import pytest

from falloff.perfmodel.cells import Cell, read_cells


def test_a_blank_is_not_stated_and_nonsense_is_an_error():
    cell = Cell({"gpus": " ", "hidden": "nan", "layers": "many", "seq": "-4", "tp": "1.5"})
    assert cell.count("gpus") is None
    assert cell.number("hidden") is None
    assert cell.count("pp") is None
    with pytest.raises(ValueError, match="layers must be a number, found 'many'"):
        cell.count("layers")
    with pytest.raises(ValueError, match="seq must be above zero"):
        cell.count("seq")
    with pytest.raises(ValueError, match="tp must be a whole number"):
        cell.count("tp")


def test_a_measured_column_never_refuses_a_row():
    cell = Cell({"step_time_s": "fast", "mfu_published": "0"})
    assert cell.measured("step_time_s") is None
    assert cell.measured("mfu_published") is None


def test_a_flag_is_zero_one_or_not_stated():
    assert Cell({"compile": "1.0"}).flag("compile") is True
    assert Cell({"compile": "0"}).flag("compile") is False
    assert Cell({}).flag("compile") is None
    with pytest.raises(ValueError, match="compile must be 0 or 1"):
        Cell({"compile": "maybe"}).flag("compile")


def test_rows_keep_their_order_and_short_rows_are_blank_at_the_end(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text("cell_id,gpus,seq\nb,8,2048\na,16\n,,,,,\n", encoding="utf-8")
    rows = read_cells(path)
    assert [row.cell_id for row in rows] == ["b", "a", ""]
    assert rows[1].count("seq") is None


def test_a_file_without_a_header_is_refused(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="header"):
        read_cells(path)
