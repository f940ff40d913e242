"""Turn sealed raw logs into records."""

import argparse
from pathlib import Path

from falloff.ingest.native import read_native_kernels, read_native_log
from falloff.records import CollectiveRecord, KernelRecord, RunRecord, write_records
from falloff.script import run
from falloff.spec.hardware import read_all_hardware


def main() -> None:
    """Read the logs, write the three record files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, nargs="+", required=True, metavar="EVENTS")
    parser.add_argument("--runs", type=Path, required=True, metavar="OUT")
    parser.add_argument("--collectives", type=Path, required=True, metavar="OUT")
    parser.add_argument("--kernels", type=Path, required=True, metavar="OUT")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    arguments = parser.parse_args()
    hardware = read_all_hardware(arguments.hardware)
    logs = [read_native_log(log, hardware) for log in arguments.log]
    kernels = [record for log in arguments.log for record in read_native_kernels(log, hardware)]
    write_records(arguments.runs, [record for runs, _ in logs for record in runs], RunRecord)
    write_records(arguments.collectives, [record for _, found in logs for record in found], CollectiveRecord)
    write_records(arguments.kernels, kernels, KernelRecord)


if __name__ == "__main__":
    run(main)
