"""The options of falloff predict, plan, calibrate and validate; nothing heavy is imported: --help answers at once."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Add = Callable[[Any, str, str, str], argparse.ArgumentParser]

# as perfmodel.jobs and perfmodel.requests state them
_RECOMPUTES = ("none", "selective", "full")
_PRECISIONS = ("bfloat16", "float16", "float32", "float8", "float4")
_SHARDINGS = ("none", "zero1", "zero2", "zero3")


def add_predict(commands: Any, add: Add) -> None:
    """Add falloff predict to the commands."""
    parser = add(commands, "predict", "falloff.cli.predict", "predict a training step: time, memory, power")
    parser.add_argument(
        "--cells", type=Path, metavar="CELLS.csv", help="predict each row of a table of training cells instead"
    )
    parser.add_argument("--output", type=Path, metavar="OUT.csv", help="where the predictions of --cells go")
    _add_job(parser)
    parser.add_argument(
        "--layout",
        default="",
        metavar="AXIS=N,...",
        help="degrees of dp_replicate, dp_shard, tp, cp, pp, vpp, ep; without a dp axis the rest of --gpus is dp_shard",
    )
    parser.add_argument("--local-batch", type=int, metavar="N", help="sequences of a data-parallel rank in a step")
    parser.add_argument("--global-batch", type=int, metavar="N", help="sequences of a step, instead of --local-batch")
    parser.add_argument("--microbatch", type=int, metavar="N", help="sequences run at once (default: all; 1 over pp)")
    parser.add_argument("--accumulation", type=int, metavar="N", help="microbatches of a step, instead of --microbatch")
    parser.add_argument("--recompute", choices=_RECOMPUTES, default="none")
    parser.add_argument("--reduce-bytes", type=float, metavar="N", help="bytes of a gradient as it is reduced: 2 or 4")
    parser.add_argument(
        "--reshard", action=argparse.BooleanOptionalAction, help="whether FSDP frees parameters after the forward pass"
    )


def add_plan(commands: Any, add: Add) -> None:
    """Add falloff plan to the commands."""
    parser = add(commands, "plan", "falloff.cli.plan", "find the best layouts, and why the others lose")
    _add_job(parser)
    parser.add_argument("--global-batch", type=int, metavar="N", help="sequences of a step")
    parser.add_argument(
        "--memory-limit", type=float, metavar="GIB", help="device memory that a GPU may use (default: what it has)"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="layouts shown (default: 10)")
    parser.add_argument("--max-tp", type=int, metavar="N", help="largest tensor parallelism (default: what divides)")
    parser.add_argument(
        "--recompute",
        nargs="+",
        choices=_RECOMPUTES,
        default=list(_RECOMPUTES),
        help="the modes tried (default: all three)",
    )


def add_calibrate(commands: Any, add: Add) -> None:
    """Add falloff calibrate to the commands."""
    parser = add(commands, "calibrate", "falloff.cli.calibrate", "fit a cluster's own rates to what was measured on it")
    parser.add_argument(
        "--cluster",
        required=True,
        metavar="CLUSTER.yaml",
        help="the file that describes the cluster, like those of config/clusters, or the name of one of those",
    )
    parser.add_argument(
        "--from",
        dest="from_logs",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        metavar="LOG",
        help="nccl-tests' output, what falloff preflight --json printed, runs of falloff measure",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT.yaml",
        help="where its file goes with the fitted values, may be the same file",
    )
    _add_calibration(parser)


def add_validate(commands: Any, add: Add) -> None:
    """Add falloff validate to the commands."""
    parser = add(commands, "validate", "falloff.cli.validate", "score the model on every published cell")
    parser.add_argument(
        "--cells", type=Path, metavar="CELLS.csv", help="another table of measured cells with the same columns"
    )
    parser.add_argument(
        "--calibrate", action="store_true", help="renew the calibration that is shipped instead of scoring"
    )
    parser.add_argument(
        "--power",
        action="store_true",
        help="score the watts on our own runs instead, and refit their parameters; the shipped ones stay",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE.json", help="where --calibrate writes instead, or --power as well"
    )


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", metavar="NAME", help="a file of config/models, or the path of a YAML file like it")
    parser.add_argument(
        "--hardware", metavar="CLUSTER", help="a file of config/clusters, or the path of a YAML file like it"
    )
    parser.add_argument("--gpus", type=int, metavar="N")
    parser.add_argument("--seq", type=int, metavar="TOKENS")
    parser.add_argument(
        "--framework",
        default="torchtitan",
        metavar="NAME",
        help="the program whose habits fill in what is not stated (default: torchtitan)",
    )
    parser.add_argument(
        "--precision", choices=_PRECISIONS, help="(default: bfloat16, float16 on a GPU that has none of it)"
    )
    parser.add_argument(
        "--sharding", choices=_SHARDINGS, help="none is DDP, zero3 FSDP (default: the framework's, of torchtitan zero3)"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="whether blocks are compiled (default: as the framework)",
    )
    parser.add_argument(
        "--fused-attention", action=argparse.BooleanOptionalAction, help="(default: the framework's, mostly fused)"
    )
    _add_calibration(parser)


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE.json", help="fitted values (default: the shipped ones, or the priors)"
    )
