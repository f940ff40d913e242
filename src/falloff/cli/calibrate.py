"""falloff calibrate: a cluster's own rates and latencies from what was measured on it, into its file."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from falloff.cli.output import print_json
from falloff.cli.predict import fit_of
from falloff.outputs import whole_file
from falloff.perfmodel.own_cluster import OwnFit, calibrate_cluster
from falloff.perfmodel.own_points import OwnPoints, read_own_points
from falloff.report.calibrate_text import calibration_lines, with_calibration
from falloff.spec.cluster import CLUSTERS, Cluster, find_cluster, read_cluster


def run(parsed: argparse.Namespace) -> int:
    """Print what the measurements say of a cluster, and write its file; 1 where they tell no value."""
    cluster = find_cluster(parsed.cluster)
    points = read_own_points(parsed.from_logs, cluster)
    found = calibrate_cluster(cluster, points, fit_of(parsed.calibration))
    if parsed.output is not None and found.values:
        _write(parsed.output, cluster, found, parsed)
    if parsed.json:
        print_json(_json(found, points, parsed.output))
    else:
        print("\n".join(calibration_lines(found, points)))
        if parsed.output is not None and found.values:
            print(f"\n{parsed.output}: predict and plan take it by --hardware {parsed.output}")
    return 0 if found.values else 1


def _write(output: Path, cluster: Cluster, found: OwnFit, parsed: argparse.Namespace) -> None:
    """Write the cluster's file with its own values; ValueError where a prediction could not take it up by its name."""
    if output.suffix not in (".yaml", ".yml"):
        raise ValueError(f"{output}: a cluster is described in a file that ends in .yaml")
    text = _path_of(parsed.cluster, cluster).read_text(encoding="utf-8")
    sources = ", ".join(path.name for path in parsed.from_logs)
    with whole_file(output) as temporary:
        temporary.write_text(with_calibration(text, found.values, sources), encoding="utf-8")
        # what was written must be what a prediction reads: a file with its last key in an odd place would not be
        if read_cluster(temporary).node.calibration.keys() != found.values.keys():
            raise ValueError(f"{parsed.cluster}: its own block calibration cannot be replaced; take it out first")


def _path_of(name: str, cluster: Cluster) -> Path:
    return Path(name) if name.endswith((".yaml", ".yml")) else CLUSTERS / f"{cluster.name}.yaml"


def _json(found: OwnFit, points: OwnPoints, output: Path | None) -> dict[str, Any]:
    return {
        "cluster": found.cluster.name,
        "hardware": found.cluster.gpu.name,
        "output": output if found.values else None,
        "points": {name: len(getattr(points, name)) for name in ("collectives", "products", "copies")},
        "values": {
            name: {**dataclasses.asdict(own), "level": 0.9, "shipped": found.shipped[name],
                   "at_bound": name in found.at_bound}
            for name, own in found.values.items()
        },
        "untold": dict(found.untold),
        "residuals": [
            {
                "points": one.name,
                "n": len(one.before),
                **{f"median_abs_error_{when}": float(np.median(np.abs(errors))) for when, errors in
                   (("shipped", one.before), ("own", one.after))},
                **{f"bias_{when}": float(np.median(errors)) for when, errors in
                   (("shipped", one.before), ("own", one.after))},
            }
            for one in found.residuals
        ],
        "left_out": list(points.left_out),
    }  # fmt: skip
