"""A figure's caption as reStructuredText, as snakemake --report takes it."""

import json
import re
from pathlib import Path

# what the markup takes for emphasis, a reference, a substitution, or an escape, wherever it stands
_MARKUP = re.compile(r"([\\`*_|])")


def caption_rst(about: Path) -> str:
    """Return title and whole caption of the figure that save_figure said `about`, its characters taken literally."""
    texts = json.loads(about.read_text(encoding="utf-8"))
    title, caption = (_MARKUP.sub(r"\\\1", str(texts[name])) for name in ("title", "caption"))
    return f"**{title}**\n\n{caption}\n"
