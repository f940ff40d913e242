"""Every figure's look: legible sizes, colours that part for every eye and in grey, axes with plain numbers."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.report import style

# Machado, Oliveira and Fernandes 2009 (doi 10.1109/TVCG.2009.113), severity 1.0, on linear RGB.
DEFICIENCIES = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
PALETTES = {
    "layouts": style.LAYOUT_COLORS,
    "collectives": style.COLLECTIVE_COLORS,
    "techniques": style.TECHNIQUE_COLORS,
    # sizes that are alike share one
    "networks": {color: color for color in style.NETWORK_COLORS.values()},
    "machines": style.MACHINE_COLORS,
}


def lightness(luminance):
    return 116 * np.cbrt(luminance) - 16 if luminance > 0.008856 else 903.3 * luminance


def seen(color, matrix):
    channels = np.array(mpl.colors.to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return np.clip(np.array(matrix) @ linear, 0, 1) ** (1 / 2.2)


@pytest.fixture(autouse=True)
def _styled():
    style.apply()
    yield
    plt.close("all")


@pytest.mark.parametrize("colors", PALETTES.values(), ids=PALETTES)
def test_every_colour_is_legible_on_white(colors):
    for color in colors.values():
        assert 1.05 / (style.relative_luminance(color) + 0.05) >= 3  # WCAG 2.2, 1.4.11


@pytest.mark.parametrize("colors", PALETTES.values(), ids=PALETTES)
def test_the_first_three_colours_of_a_kind_part_in_grey(colors):
    first = [lightness(style.relative_luminance(color)) for color in list(colors.values())[:3]]
    assert min(abs(a - b) for a, b in itertools.combinations(first, 2)) >= 12


@pytest.mark.parametrize("matrix", DEFICIENCIES.values(), ids=DEFICIENCIES)
@pytest.mark.parametrize("colors", PALETTES.values(), ids=PALETTES)
def test_colours_of_a_kind_part_for_colour_blind_eyes(colors, matrix):
    for a, b in itertools.combinations(colors.values(), 2):
        assert np.linalg.norm(seen(a, matrix) - seen(b, matrix)) >= 0.12, (a, b)


@given(st.integers(2, 8))
def test_a_ramp_grows_darker_and_stays_legible(num_colors):
    luminances = [style.relative_luminance(color) for color in style.ramp(num_colors)]
    assert luminances == sorted(luminances, reverse=True)
    assert 1.05 / (luminances[0] + 0.05) >= 3


def test_no_size_of_the_style_is_under_six_points():
    sizes = [style.SMALLEST_PT, style.NOTE_PT, style.LABEL_PT, style.BASE_PT]
    sizes += [value for name, value in mpl.rcParams.items() if name.endswith("size") and "font" in name]
    sizes += [mpl.rcParams[name] for name in ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "legend.fontsize")]
    assert min(size for size in sizes if isinstance(size, int | float)) >= 6


def test_each_provenance_has_its_own_mark():
    marks = [(mark.marker, mark.filled, mark.line) for mark in style.MARKS.values()]
    assert len(set(marks)) == len(style.PROVENANCES)


def test_a_users_own_settings_do_not_reach_a_figure():
    mpl.rcParams["font.size"] = 31
    style.apply()
    assert mpl.rcParams["font.size"] == style.BASE_PT
    assert mpl.rcParams["pdf.compression"] == 0
    assert mpl.rcParams["pdf.fonttype"] == 42


def test_a_log_axis_prints_plain_numbers():
    _, ax = plt.subplots()
    ax.plot([8, 512], [1000, 300000])
    style.log_axis(ax, "x", [8, 16, 512])
    style.log_axis(ax, "y")
    ax.figure.draw_without_rendering()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["8", "16", "512"]
    assert "10,000" in [text.get_text() for text in ax.get_yticklabels()]
    assert not any("$" in text.get_text() for text in [*ax.get_yticklabels(), *ax.get_xticklabels(which="both")])


def test_a_log_axis_of_bytes_prints_binary_units():
    _, ax = plt.subplots()
    style.log_axis(ax, "x", [1024, 2**20], unit="bytes")
    ax.figure.draw_without_rendering()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1 KiB", "1 MiB"]


@given(st.floats(1e-6, 1e9), st.floats(1.3, 1e9))
def test_plain_ticks_stay_within_the_axis_and_few(low, factor):
    ticks = style.plain_ticks(low, low * factor)
    assert len(ticks) <= 8
    assert all(low * 0.99 <= tick <= low * factor * 1.01 for tick in ticks)


def test_plain_ticks_of_an_empty_range_are_an_error():
    with pytest.raises(ValueError, match="0 < low < high"):
        style.plain_ticks(3, 3)
