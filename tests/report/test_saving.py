"""A saved figure is exactly its table, byte for byte, and its caption counts the evidence."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D

from falloff.report import panels, saving, style


def test_no_text_of_a_figure_is_under_six_points(frame, drawn):
    fig = drawn(frame())
    fig.draw_without_rendering()
    assert 6 <= saving.smallest_text_pt(fig) <= style.BASE_PT


def test_a_figure_with_smaller_text_is_not_saved(tmp_path, frame, drawn):
    fig = drawn(frame())
    fig.axes[0].text(0, 0, "fine print", fontsize=5)
    with pytest.raises(AssertionError):
        saving.save_figure(fig, tmp_path / "x", frame(), title="", finding="It is.", caption="", alt="")


def test_the_same_input_saves_the_same_bytes(tmp_path, frame, save):
    for name in ("one", "two"):
        save(tmp_path / name, frame())
    for suffix in ("pdf", "png", "csv", "json"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_noise_in_the_last_bits_does_not_move_a_byte_of_the_pdf(tmp_path, frame):
    for name, noise in (("one", 0.0), ("two", 1e-12)):
        fig, axes = panels.new_figure(1, 1, width_in=3.4, height_in=2.0)
        ax = axes.flat[0]
        steps = np.linspace(1.0, 2.0, 2000)
        ax.set_yscale("log")
        ax.scatter(steps, np.exp(steps) * (1 + noise * np.sin(1e4 * steps)))
        texts = {"title": "t", "finding": "f", "caption": "c", "alt": "a"}
        saving.save_figure(fig, tmp_path / name, frame(), **texts)
    assert (tmp_path / "one.pdf").read_bytes() == (tmp_path / "two.pdf").read_bytes()


def test_a_sum_of_powers_of_two_is_written_alike_from_above_and_below(tmp_path, frame):
    # 100.4146875 points from below of a figure of 216 lie between two numbers of six decimals
    for name, noise in (("one", 1e-11), ("two", -1e-11)):
        fig, axes = panels.new_figure(1, 1, width_in=3.0, height_in=3.0)
        fig.add_artist(Line2D([0, 1], [(100.4146875 + noise) / 216] * 2))
        axes.flat[0].plot([1, 2], [1, 2])
        texts = {"title": "t", "finding": "f", "caption": "c", "alt": "a"}
        saving.save_figure(fig, tmp_path / name, frame(), **texts)
    assert (tmp_path / "one.pdf").read_bytes() == (tmp_path / "two.pdf").read_bytes()


def test_a_saved_pdf_has_no_date_and_type_42_fonts(tmp_path, frame, save):
    save(tmp_path / "x", frame())
    pdf = (tmp_path / "x.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    assert b"/CIDFontType2" in pdf  # how type 42 fonts are stored
    assert b"Software" not in (tmp_path / "x.png").read_bytes()


def test_the_caption_begins_with_the_counts_by_provenance(tmp_path, frame, save):
    about = save(tmp_path / "x", frame())
    counts = {"measured": 3, "imported": 0, "published": 1, "predicted": 0}
    assert json.loads((tmp_path / "x.json").read_text()) == about
    assert about["counts"] == counts
    assert about["caption"].startswith("Records: 3 measured, 0 imported, 1 published, 0 predicted. ")


def test_the_finding_stands_between_the_counts_and_how_to_read_it(tmp_path, frame, save):
    about = save(tmp_path / "x", frame())
    assert about["finding"] == "b is slower than a."
    assert about["caption"].endswith(" 0 predicted. b is slower than a. What it shows.")


def test_what_is_missing_ends_the_caption_and_stands_apart(tmp_path, frame, drawn):
    table = frame()
    about = saving.save_figure(
        drawn(table),
        tmp_path / "x",
        table,
        title="",
        finding="It is.",
        caption="Read it.",
        alt="",
        missing="Not shown: c.",
    )
    assert about["missing"] == "Not shown: c."
    assert about["caption"].endswith("It is. Read it. Not shown: c.")


def test_a_figure_without_a_finding_is_not_saved(tmp_path, frame, drawn):
    with pytest.raises(ValueError, match="no finding is stated"):
        saving.save_figure(drawn(frame()), tmp_path / "x", frame(), title="", finding=" ", caption="", alt="")
    assert not list(tmp_path.iterdir())


def test_a_table_that_does_not_name_its_records_is_an_error(tmp_path, frame, drawn):
    table = frame().drop(columns="record_id")
    with pytest.raises(ValueError, match="the table has no column record_id"):
        saving.save_figure(drawn(frame()), tmp_path / "x", table, title="", finding="It is.", caption="", alt="")


def test_the_csv_is_the_table_at_six_digits(frame):
    table = frame()
    read = pd.read_csv(io.StringIO(saving.csv_text(table)))
    assert list(read.columns) == list(table.columns)
    assert read["y"].tolist() == [100.0, 180.123, 300.0, 250.0]
    assert read["n"].isna().tolist() == [False, False, False, True]
    assert read["label"].tolist()[2] == 'tp 2, "so"'


def test_the_order_of_the_rows_of_a_table_does_not_change_its_csv(frame):
    table = frame()
    assert saving.csv_text(table) == saving.csv_text(table.iloc[[3, 1, 0, 2]])


def test_whole_numbers_are_written_whole(frame):
    lines = saving.csv_text(frame(x=[67108864.0, 1.0, 2.0, np.nan], series="a")).splitlines()
    assert lines[3].startswith("throughput,a,67108864,")
    assert lines[4].startswith("throughput,a,,")


def test_an_empty_table_and_an_unknown_provenance_are_errors(tmp_path, frame, drawn):
    fig = drawn(frame())
    with pytest.raises(ValueError, match="nothing to draw"):
        saving.save_figure(fig, tmp_path / "x", frame().iloc[:0], title="", finding="It is.", caption="", alt="")
    with pytest.raises(ValueError, match="provenance guessed"):
        saving.save_figure(
            fig, tmp_path / "x", frame(provenance="guessed"), title="", finding="It is.", caption="", alt=""
        )
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_said_with_its_reason():
    coverage = pd.DataFrame(
        {
            "figure": "f",
            "cell": ["1B, 8 GPUs", "80B, 8 GPUs", "8B, 16 GPUs"],
            "status": ["published", "failed", "missing"],
            "reason": [None, "oom", None],
            "n": [1, 1, 1],
        }
    )
    assert saving.missing_sentence(coverage) == "Not shown: 80B, 8 GPUs (failed: oom); 8B, 16 GPUs (missing)."
    assert "and 1 more" in saving.missing_sentence(coverage, most=1)
    assert saving.missing_sentence(coverage.iloc[:1]) == ""


def test_the_different_values_of_a_column_in_words():
    assert saving.distinct(pd.Series([8192.0, 4096.0, 8192.0, None])) == "8,192 and 4,096"
    assert saving.distinct(pd.Series(["gloo", None, "nccl"]), "; ") == "gloo; nccl"
    assert saving.distinct(pd.Series([None, None], dtype=object)) == "not stated"
