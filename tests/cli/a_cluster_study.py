"""A folder with a study for a cluster and a site file, in which the commands are called."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
STUDY = """\
question: Does a job ask for what its cell needs?
measure_on: [slurm]
limits: {timeout_s: 180}
fixed: {network: llama-5m, seq: 64, global_batch: 8, microbatch: 1}
grids:
  - repeats: 2
    grid:
      layout: [{dp_shard: 2}, {dp_shard: 8}, {dp_replicate: 4, tp: 2}]
"""


def make_checkout(folder: Path) -> None:
    """Make what the commands read of a checkout: networks, hardware, the study `nodes` and the shipped site file."""
    (folder / "config" / "studies").mkdir(parents=True)
    (folder / "config" / "studies" / "nodes.yaml").write_text(STUDY)
    for name in ("models", "hardware"):
        (folder / "config" / name).symlink_to(ROOT / "config" / name)
    write_site(folder)


def write_site(folder: Path, **changes: Any) -> None:
    """Write the site file that ships, with changes."""
    path = folder / "profiles" / "slurm" / "site.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    shipped = yaml.safe_load((ROOT / "profiles" / "slurm" / "site.yaml").read_text())
    path.write_text(yaml.safe_dump({**shipped, "startup_s": 300, **changes}))
