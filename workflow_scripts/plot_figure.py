"""Draw one figure by running its notebook; a failing cell is named with its notebook."""

import argparse
from pathlib import Path

from falloff.outputs import whole_file
from falloff.report.captions import caption_rst
from falloff.report.notebook import execute
from falloff.script import run


def main() -> None:
    """Parse arguments, run the notebook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", required=True, type=Path)
    parser.add_argument("--table", required=True)
    parser.add_argument("--coverage", required=True)
    parser.add_argument("--out", required=True, help="path of the figure without its ending")
    parser.add_argument("--executed", required=True, type=Path, help="where the executed notebook goes")
    parser.add_argument(
        "--caption", type=Path, help="where the caption goes as reStructuredText, for snakemake --report"
    )
    arguments = parser.parse_args()
    parameters = {name: getattr(arguments, name) for name in ("table", "coverage", "out")}
    execute(arguments.notebook, arguments.executed, parameters)
    if arguments.caption:
        with whole_file(arguments.caption) as path:
            path.write_text(caption_rst(Path(f"{arguments.out}.json")), encoding="utf-8")


if __name__ == "__main__":
    run(main)
