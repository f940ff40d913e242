"""Make the table and the coverage of figure one_h200 from our runs, published cells and the calibration."""

from falloff.analysis.one_h200 import tabulate
from falloff.analysis.tabulation import tabulate_modelled
from falloff.script import run


def main() -> None:
    """Read what rule tabulate_modelled names, write both tables."""
    tabulate_modelled(__doc__, tabulate)


if __name__ == "__main__":
    run(main)
