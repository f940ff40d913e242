"""Captions for snakemake --report."""

import json
from pathlib import Path

from docutils.core import publish_parts

from falloff.report.captions import caption_rst


def test_what_the_markup_would_take_for_its_own_is_shown_as_it_stands(tmp_path: Path) -> None:
    about = tmp_path / "a.json"
    caption = "Of dp_shard_ *and* `tp` |x| 6 (N - N_embedding) C:\\x, ** 2."
    about.write_text(json.dumps({"title": "A *title*", "caption": caption}))
    written = publish_parts(caption_rst(about), writer="html", settings_overrides={"halt_level": 2})["body"]
    assert caption in written
    assert "<strong>A *title*</strong>" in written
