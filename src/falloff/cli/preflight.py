"""falloff preflight: whether this node's GPUs are fit for a study."""

import argparse
import dataclasses

from falloff.cli.output import print_json
from falloff.preflight import find_faults, run_preflight
from falloff.report.preflight_text import preflight_lines


def run(parsed: argparse.Namespace) -> int:
    """Print what the GPUs do; 1 where one stands out, was held down, or something failed."""
    found = run_preflight(parsed.device)
    faults = find_faults(found)
    if parsed.json:
        print_json({**dataclasses.asdict(found), "faults": faults})
        return 1 if faults else 0
    print("\n".join(preflight_lines(found)))
    print()
    for fault in faults:
        print(f"FAULT: {fault}.")
    if not faults:
        print(f"No {found.noun} and no pair stands out.")
    return 1 if faults else 0
