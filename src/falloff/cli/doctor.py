"""falloff doctor: what is here, and what is missing for which part; --site: what a cluster lacks of its site file."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from falloff.cli.output import print_json
from falloff.doctor import PARTS, Finding, blockers, examine
from falloff.launch import Run
from falloff.rawlog import is_sealed
from falloff.schedule import runs_on_site
from falloff.site_check import examine_site
from falloff.slurm.client import run_command
from falloff.spec.site import Site, read_site
from falloff.spec.study import read_study

# What is printed before each finding.
MARKS = {"ok": "ok", "missing": "MISSING", "differs": "differs", "absent": "none"}


def run(parsed: argparse.Namespace) -> int:
    """Print what is here; 1 where something is missing that `make figures`, or with --site a submission, needs."""
    if parsed.site is not None:
        findings = _examine_site(parsed.root, parsed.site)
        missing = [finding for finding in findings if finding.state == "missing"]
        words = ("the cluster lacks what the site file asks for", "Nothing that the site file asks for is missing.")
        return _report(findings, missing, words, as_json=parsed.json)
    findings = examine(parsed.root)
    words = ("`make figures` cannot run here, missing", "Nothing that `make figures` needs is missing.")
    return _report(findings, blockers(findings), words, as_json=parsed.json)


def _report(findings: Sequence[Finding], missing: Sequence[Finding], words: tuple[str, str], *, as_json: bool) -> int:
    """Print findings and the last line, one of two; return 1 where something is missing."""
    lacking, well = words
    if as_json:
        print_json({"findings": [dataclasses.asdict(f) for f in findings], "missing": [f.name for f in missing]})
        return 1 if missing else 0
    _print_findings(findings)
    if missing:
        raise ValueError(f"{lacking}: {', '.join(dict.fromkeys(finding.name for finding in missing))}")
    print(f"\n{well}")
    return 0


def _examine_site(root: Path, site_file: Path) -> list[Finding]:
    """Return what the cluster says to a site file and to the jobs of the studies that a cluster measures."""
    # Snakemake's plugin, which renders the jobs, takes its seconds
    from falloff.submission import job_commands

    site = read_site(site_file)
    # a person calls it again, and a refusal of sbatch is no hiccup
    return examine_site(site, partial(run_command, tries=1), job_commands(_runs_on_slurm(root, site), site))


def _runs_on_slurm(root: Path, site: Site) -> Iterator[Run]:
    """Yield the runs without a sealed log of every study whose measure_on names slurm."""
    for path in sorted((root / "config" / "studies").glob("*.yaml")):
        study = read_study(path, root / "config" / "models")
        if "slurm" in study.measure_on:
            runs, _ = runs_on_site(study, root / "data" / "raw", site)
            yield from (run for run in runs if not is_sealed(run.run_dir))


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
