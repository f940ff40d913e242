"""Make the table and the coverage of figure power_per_token from our runs and the calibration."""

from falloff.analysis.power_per_token import tabulate
from falloff.analysis.tabulation import tabulate_predicted
from falloff.script import run


def main() -> None:
    """Read what the rule gives, write both tables."""
    tabulate_predicted(__doc__, tabulate)


if __name__ == "__main__":
    run(main)
