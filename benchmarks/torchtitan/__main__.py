"""falloff beside TorchTitan on the same GPUs: `python -m benchmarks.torchtitan --torchtitan PATH_TO_ITS_SOURCE`."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.torchtitan.legs import Place, read_results, run_legs
from benchmarks.torchtitan.plan import leg_order, make_sides
from benchmarks.torchtitan.table import show
from falloff.outputs import whole_file
from falloff.spec.network import read_network

LEGS = ("titan_none_1", "ours_none_1", "ours_best")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the legs that are missing and print the table; 1 where legs are left, 2 where the request is wrong."""
    given = _parser().parse_args(arguments)
    # an ordinary end, so that the leg under way ends too
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        return _run(given)
    except ValueError as error:
        print(f"benchmarks.torchtitan: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    ends_s = time.monotonic() + given.budget_s
    network = read_network(given.network, Path("config/models"))
    sides = make_sides(
        given.legs,
        network,
        seq=given.seq,
        ranks=given.gpus,
        best=read_changes(given.best),
        every=read_changes(given.all),
    )
    if not (given.torchtitan / "torchtitan" / "train.py").is_file():
        raise ValueError(f"--torchtitan {given.torchtitan}: there is no torchtitan/train.py, so it is no source tree")
    place = Place(folder=given.folder, titan_path=given.torchtitan, device=given.device, leg_limit_s=given.leg_limit_s)
    left = run_legs(leg_order(given.legs, given.blocks), sides, place, ends_s=ends_s, say=_say)
    _report(given.folder)
    if left:
        print(f"{len(left)} legs are left; the same command goes on with them")
    return 1 if left else 0


def read_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """Return name=value pairs, values as YAML writes them; ValueError for what is no pair."""
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no change of a cell; name=value is, such as microbatch=2")
    return {name: yaml.safe_load(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def _report(folder: Path) -> None:
    results = read_results(folder)
    if not results:
        return
    lines = show(results)
    print(*lines, sep="\n")
    with whole_file(folder / "side_by_side.txt") as path:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    with whole_file(folder / "side_by_side.json") as path:
        path.write_text(json.dumps(results), encoding="utf-8")


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torchtitan", description=__doc__)
    parser.add_argument("--torchtitan", type=Path, required=True, help="TorchTitan's source tree, v0.2.2")
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks/torchtitan"))
    parser.add_argument("--legs", nargs="+", default=list(LEGS), help="the sides of a block, in their order")
    parser.add_argument("--blocks", type=int, default=4, help="how often each side runs; every other block backwards")
    parser.add_argument(
        "--best", nargs="*", default=[], metavar="NAME=VALUE", help="what ours_best changes in its cell"
    )
    parser.add_argument(
        "--all", nargs="*", default=[], metavar="NAME=VALUE", help="what every side changes in its cell"
    )
    parser.add_argument("--network", default="llama3-8b", help="of config/models")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--leg-limit-s", type=float, default=240.0)
    parser.add_argument("--budget-s", type=float, default=86400.0, help="start no leg that would end later than this")
    return parser


if __name__ == "__main__":
    sys.exit(main())
