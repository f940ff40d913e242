"""Make the table and the coverage of figure goodput from published cells, failure rates and the calibration."""

from falloff.analysis.goodput import tabulate
from falloff.analysis.tabulation import tabulate_modelled
from falloff.script import run


def main() -> None:
    """Parse arguments, write both tables."""
    tabulate_modelled(__doc__, tabulate)


if __name__ == "__main__":
    run(main)
