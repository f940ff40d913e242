"""Turn one sealed raw log into records."""

import argparse
from pathlib import Path

from falloff.ingest.native import read_native_kernels, read_native_log
from falloff.records import CollectiveRecord, KernelRecord, RunRecord, write_records
from falloff.script import run
from falloff.spec.hardware import read_all_hardware


def main() -> None:
    """Read the log, write the three record files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, metavar="EVENTS")
    parser.add_argument("--runs", type=Path, required=True, metavar="OUT")
    parser.add_argument("--collectives", type=Path, required=True, metavar="OUT")
    parser.add_argument("--kernels", type=Path, required=True, metavar="OUT")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    arguments = parser.parse_args()
    hardware = read_all_hardware(arguments.hardware)
    runs, collectives = read_native_log(arguments.log, hardware)
    write_records(arguments.runs, runs, RunRecord)
    write_records(arguments.collectives, collectives, CollectiveRecord)
    write_records(arguments.kernels, read_native_kernels(arguments.log, hardware), KernelRecord)


if __name__ == "__main__":
    run(main)
