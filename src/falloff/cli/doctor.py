"""falloff doctor: what is here, and what is missing for which part."""

import argparse
import dataclasses
from collections.abc import Sequence

from falloff.cli.output import print_json
from falloff.doctor import PARTS, Finding, blockers, examine

# What is printed before each finding.
MARKS = {"ok": "ok", "missing": "MISSING", "differs": "differs", "absent": "none"}


def run(parsed: argparse.Namespace) -> int:
    """Print what is here; 1 where something is missing that `make figures` needs."""
    findings = examine(parsed.root)
    missing = blockers(findings)
    if parsed.json:
        print_json({"findings": [dataclasses.asdict(f) for f in findings], "missing": [f.name for f in missing]})
        return 1 if missing else 0
    _print_findings(findings)
    if missing:
        raise ValueError(f"`make figures` cannot run here, missing: {', '.join(f.name for f in missing)}")
    print("\nNothing that `make figures` needs is missing.")
    return 0


def _print_findings(findings: Sequence[Finding]) -> None:
    widest = max(len(finding.name) for finding in findings)
    for part in PARTS:
        of_part = [finding for finding in findings if finding.part == part]
        if of_part:
            print(f"\n{part}")
        for finding in of_part:
            print(f"  {MARKS[finding.state]:<8}{finding.name:<{widest}}  {finding.found}")
            if finding.advice:
                print(f"  {'':<8}{'':<{widest}}  -> {finding.advice}")
