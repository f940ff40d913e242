"""What the stages share: the studies that are on, where this is, and the code files under an entry."""

from pathlib import Path

from falloff.launch import num_attached_gpus
from falloff.ownership import hold_checkout
from falloff.provenance import code_of
from falloff.spec.reading import build
from falloff.spec.settings import Settings
from falloff.spec.study import read_study

NETWORKS = Path("config/models")
RAW = Path("data/raw")
EXTERNAL = Path("data/external")
HARDWARE_FILES = sorted(str(path) for path in Path("config/hardware").glob("*.yaml"))
NETWORK_FILES = sorted(str(path) for path in NETWORKS.glob("*.yaml"))

try:
    SETTINGS = build(Settings, config, "config")
    NUM_GPUS = num_attached_gpus(SETTINGS.device)
    STUDIES = {name: read_study(Path(f"config/studies/{name}.yaml"), NETWORKS, NUM_GPUS) for name in SETTINGS.studies}
except ValueError as error:
    raise WorkflowError(str(error)) from error

for study in STUDIES.values():
    for refused in study.refused:
        logger.warning(f"refused: {refused.reason}")


HELD_LOCKS = []


# In place of Snakemake's own lock, which profiles/default turns off: it survives a killed head.
onstart:
    try:
        HELD_LOCKS.append(hold_checkout(Path()))
    except ValueError as error:
        raise WorkflowError(str(error)) from error
