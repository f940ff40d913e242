"""Turn one folder of others' logs and tables into records."""

import argparse
from pathlib import Path

from falloff.ingest.external import read_folder
from falloff.records import CollectiveRecord, RunRecord, write_records
from falloff.script import run


def main() -> None:
    """Read the folder, write both record files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, metavar="DIR")
    parser.add_argument("--runs", type=Path, required=True, metavar="OUT")
    parser.add_argument("--collectives", type=Path, required=True, metavar="OUT")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    arguments = parser.parse_args()
    runs, collectives = read_folder(arguments.folder, arguments.hardware)
    write_records(arguments.runs, runs, RunRecord)
    write_records(arguments.collectives, collectives, CollectiveRecord)


if __name__ == "__main__":
    run(main)
