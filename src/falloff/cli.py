"""The command line, filled by its subcommands."""


def main() -> int:
    """Return the exit code."""
    return 0
