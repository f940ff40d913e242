"""Make the table and the coverage of figure model_size from runs, published cells and the calibration."""

from falloff.analysis.model_size import tabulate
from falloff.analysis.tabulation import tabulate_modelled
from falloff.script import run


def main() -> None:
    """Hand the figure's tabulate to what all modelled figures have in common."""
    tabulate_modelled(__doc__, tabulate)


if __name__ == "__main__":
    run(main)
