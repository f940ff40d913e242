"""Images within the page."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from falloff.report.embedding import data_uri

ROOT = Path(__file__).parents[2]
PREFIX = "data:image/webp;base64,"


def decoded(uri: str) -> Image.Image:
    assert uri.startswith(PREFIX)
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX)))).convert("RGB")


def test_a_figure_looks_the_same_and_takes_less() -> None:
    path = ROOT / "docs" / "figures" / "strong_scaling.png"
    uri = data_uri(path)
    before = np.asarray(Image.open(path).convert("RGB"), dtype=float)
    after = np.asarray(decoded(uri), dtype=float)
    assert before.shape == after.shape
    difference = np.abs(before - after)
    assert difference.mean() < 0.5
    assert np.quantile(difference, 0.999) < 30
    assert len(uri) < 0.5 * path.stat().st_size


def test_the_same_image_gives_the_same_address() -> None:
    path = ROOT / "docs" / "figures" / "h200.png"
    assert data_uri(path) == data_uri(path)


def test_what_is_no_image_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a.png: not a PNG file"):
        data_uri(path)
