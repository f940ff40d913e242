"""Make the table and the coverage of figure extrapolation from the cells that were held out."""

from falloff.analysis.extrapolation import tabulate
from falloff.analysis.tabulation import tabulate_held_out
from falloff.script import run


def main() -> None:
    """Read what the rule gives, write both tables."""
    tabulate_held_out(__doc__, tabulate)


if __name__ == "__main__":
    run(main)
