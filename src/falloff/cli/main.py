"""The falloff commands, each in a module of its own. Exit codes: 0 well, 1 a mistake, 2 usage."""

import argparse
import importlib
import math
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from falloff.cli.model_options import add_calibrate, add_plan, add_predict, add_validate

DESCRIPTION = "What the next node buys: logs in, records out; how runs differ, what they cost and would take."
EXAMPLES = """examples:
  falloff ingest run.log                     read a log, whatever program wrote it
  falloff ingest data/external data/raw      walk folders; each file left out is named with its reason
  falloff ingest run.log --json              the same for a program to read
  falloff doctor                             what is here, and what is missing for which part
  falloff preflight                          what this node's GPUs do, and which of them stands out
  falloff compare a.log b.log                which fields differ, and which make a comparison unfair
  falloff compare 8.log 128.log --axis num_gpus
  falloff compare 8.log 32.log 128.log       a series: which of them differ in more than the number of GPUs
  falloff measure h200 --device cuda         measure what a study has no log of; again to go on
  falloff doctor --site                      the site file against the live cluster, before anything is submitted
  falloff cost my_study                      jobs, GPU-hours and kWh of what a study has no log of
  falloff launch --show llama-5m-dp_shard2   what a cell's job asks Slurm for, and what starts its ranks
  falloff predict --network llama2-7b --hardware h100-sxm-ib400 --gpus 2048 --local-batch 2 --seq 4096
  falloff predict --cells CELLS.csv --output OUT.csv
  falloff plan --network llama3-70b --hardware h100-sxm-ib400 --gpus 512 --global-batch 1024 --seq 8192
  falloff calibrate --cluster mine.yaml --from all_reduce.log --output mine.yaml
  falloff validate                           score the model on every published cell
  falloff claims                             what became of each claim of the study, and by which evidence
"""
SITE_FILE = Path("profiles/slurm/site.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        # everything heavy is imported by the command that needs it, so that --help answers at once
        code: int = importlib.import_module(parsed.module).run(parsed)
        return code
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # `falloff ingest ... | head` closes the pipe; what is left in the buffer has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="falloff",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"falloff {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    ingest = _add(commands, "ingest", "falloff.cli.ingest", "print the records of logs, whoever wrote them")
    ingest.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="log, trace, power samples, table or folder"
    )
    ingest.add_argument(
        "--framework",
        default="auto",
        metavar="NAME",
        help="the framework of a training log whose content does not tell it (default: auto)",
    )
    doctor = _add(commands, "doctor", "falloff.cli.doctor", "say what is here, and what is missing for which part")
    doctor.add_argument("--root", type=Path, default=Path(), help="the checkout (default: this folder)")
    doctor.add_argument(
        "--site",
        type=Path,
        nargs="?",
        const=SITE_FILE,
        metavar="FILE",
        help=f"check a site file against the live cluster instead (default: {SITE_FILE})",
    )
    preflight = _add(
        commands, "preflight", "falloff.cli.preflight", "try this node's GPUs, and name those that stand out"
    )
    preflight.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="cpu tries a small version of everything on two processes (default: auto, the GPUs)",
    )
    compare = _add(
        commands, "compare", "falloff.cli.compare", "say what differs between two runs, or along a series of them"
    )
    compare.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="two logs or record files, PATH#RECORD_ID where one holds more than one record; one path, or three and "
        "more, are a series of all records in them",
    )
    compare.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="FIELD",
        help="a field whose difference is the question, such as num_gpus (may be repeated; a series is in the order of "
        "the first)",
    )
    compare.add_argument(
        "--within",
        type=_fraction,
        metavar="FRACTION",
        help="how near B must come to A to reproduce it, 0.05 or 5%% (default: as near as launches of the repeated "
        "cells of a series, else 8%%, as far as readings of one published cell have moved between its launches)",
    )
    _add_measure(commands)
    _add_launch(commands)
    _add_cost(commands)
    add_predict(commands, _add)
    add_plan(commands, _add)
    add_calibrate(commands, _add)
    add_validate(commands, _add)
    _add_claims(commands)
    return parser


def _add_claims(commands: Any) -> None:
    claims = _add(commands, "claims", "falloff.cli.claims", "print what became of each claim, by which evidence")
    claims.add_argument(
        "--claim", metavar="ID", help="one claim with its checks, the mechanism's ablation and the records it rests on"
    )
    claims.add_argument(
        "--tables",
        type=Path,
        default=Path("results/tables"),
        metavar="DIR",
        help="where the workflow's tables are (default: results/tables)",
    )


def _add_launch(commands: Any) -> None:
    launch = _add(commands, "launch", "falloff.cli.launch", "show what a cell's job is, without submitting it")
    launch.add_argument(
        "--show",
        required=True,
        metavar="CELL",
        help="a cell's id, or the beginning of one; a study's name lists its cells",
    )
    launch.add_argument("--study", metavar="STUDY", help="the study that it is in (default: all in config/studies)")
    _add_site_file(launch)


def _add_cost(commands: Any) -> None:
    cost = _add(commands, "cost", "falloff.cli.cost", "say what a study holds of a cluster before it is submitted")
    cost.add_argument("study", metavar="STUDY", help="the name of a file in config/studies")
    cost.add_argument("--data", type=Path, default=Path("data/raw"), help="where logs are (default: data/raw)")
    cost.add_argument(
        "--hardware",
        metavar="NAME",
        help="the GPU type in config/hardware whose power limit counts (default: the site file's gpu_type)",
    )
    _add_site_file(cost)


def _add_site_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--site-file", type=Path, default=SITE_FILE, metavar="FILE", help=f"the site (default: {SITE_FILE})"
    )


def _add_measure(commands: Any) -> None:
    measure = _add(commands, "measure", "falloff.cli.measure", "measure what a study has no log of")
    measure.add_argument("study", metavar="STUDY", help="the name of a file in config/studies")
    measure.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="TEXT",
        help="cells with one of the texts in their id or in what the study states of them, such as 'compile: true'",
    )
    measure.add_argument(
        "--repeat", type=_count, metavar="N", help="this repeat of each cell alone (default: all of them)"
    )
    measure.add_argument(
        "--until-s",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="start no run that is not expected to end within so many seconds (default: no limit)",
    )
    measure.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    measure.add_argument("--data", type=Path, default=Path("data/raw"), help="where logs are (default: data/raw)")
    measure.add_argument(
        "--pack", type=Path, metavar="FILE.tar.gz", help="write the new logs into FILE.part1.tar.gz, each below 15 MiB"
    )
    measure.add_argument(
        "--each-gpu",
        action="store_true",
        help="run one-process cells on every GPU at once, as repeat N on GPU 0, N + 1 on GPU 1, and so on",
    )


def _version() -> str:
    try:
        return version("falloff")
    except PackageNotFoundError:
        return "(not installed)"


def _add(commands: Any, name: str, module: str, words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words.capitalize() + ".")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else on standard output")
    parser.set_defaults(module=module)
    return parser


def _count(text: str) -> int:
    """Return a whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _fraction(text: str) -> float:
    """Return 0.05 for '0.05' and for '5%'."""
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)


if __name__ == "__main__":
    sys.exit(main())
