"""What there is: the studies that are on, their runs and records, what data/external holds, and who is at work."""

import math
from pathlib import Path

from falloff.launch import num_attached_gpus
from falloff.ownership import hold_checkout
from falloff.provenance import code_of
from falloff.spec.hardware import read_all_hardware
from falloff.spec.reading import build
from falloff.spec.settings import Settings
from falloff.spec.source import read_source
from falloff.spec.study import read_study
from falloff.units import SECONDS_PER_MINUTE

NETWORKS = Path("config/models")
RAW = Path("data/raw")
EXTERNAL = Path("data/external")
HARDWARE_FILES = sorted(str(path) for path in Path("config/hardware").glob("*.yaml"))
NETWORK_FILES = sorted(str(path) for path in NETWORKS.glob("*.yaml"))
CLUSTER_FILES = sorted(str(path) for path in Path("config/clusters").glob("*.yaml"))
CALIBRATION_FILES = sorted(str(path) for path in Path("config/perfmodel").glob("*.json"))
# what the model's collectives are fitted to
COLLECTIVE_FILES = [
    str(EXTERNAL / "published-collectives" / "collectives.csv"),
    str(EXTERNAL / "nccl-allreduce-readoff" / "nccl_allreduce_readoff.csv"),
    str(EXTERNAL / "torchtitan-h200x2" / "collectives_gemm.txt"),
]
TRAINING_CELLS = str(EXTERNAL / "published-training" / "training_cells.csv")

try:
    SETTINGS = build(Settings, config, "config")
    # elsewhere the head's own GPUs say nothing of the nodes'
    NUM_GPUS = num_attached_gpus(SETTINGS.device) if SETTINGS.site == "local" else 0
    STUDIES = {name: read_study(Path(f"config/studies/{name}.yaml"), NETWORKS, NUM_GPUS) for name in SETTINGS.studies}
    # read here only so that a mistake in one is said at once and not by the first job that needs it
    read_all_hardware(Path("config/hardware"))
except ValueError as error:
    raise WorkflowError(str(error)) from error

SITES = {"local", SETTINGS.site, *(path.parent.name for path in Path("profiles").glob("*/config.yaml"))} - {"default"}


def is_measured_here(study):
    return SETTINGS.site in study.measure_on


def is_sealed(run):
    return (RAW / run / "events.jsonl").is_file()


for study in STUDIES.values():
    for refused in study.refused:
        logger.warning(f"refused: {refused.reason}")
    if not is_measured_here(study):
        sites = ", ".join(study.measure_on) or "nowhere"
        logger.warning(f"study {study.name} is not measured on site {SETTINGS.site!r}; its measure_on: {sites}")
    for site in set(study.measure_on) - SITES:
        logger.warning(f"study {study.name}: measure_on names {site!r}; known here: {', '.join(sorted(SITES))}")


# run (its folder under data/raw) -> what the launcher is told
RUNS_TO_MEASURE = {
    f"{study.name}/{cell.cell_id}/{repeat}": (study.name, cell, repeat)
    for study in STUDIES.values()
    if is_measured_here(study)
    for cell, repeat in study.runs()
    if not is_sealed(f"{study.name}/{cell.cell_id}/{repeat}")
}


def cell_to_measure(wildcards):
    return RUNS_TO_MEASURE[wildcards.run][1].cell


def cores_of_cell(wildcards):
    cell = cell_to_measure(wildcards)
    return cell.num_processes * cell.threads_per_process


def cores_of(wildcards):
    """All cores of this machine, so that nothing runs beside a measurement; elsewhere those that the cell uses."""
    return workflow.cores if SETTINGS.site == "local" else cores_of_cell(wildcards)


def gpus_of(wildcards):
    """One GPU a process where the settings insist on GPUs; on this machine the launcher takes what is attached."""
    return cell_to_measure(wildcards).num_processes if SETTINGS.device == "cuda" else 0


def minutes_of(wildcards):
    """Return the study's time limit with five minutes for Snakemake itself to start and to end."""
    limit_s = STUDIES[RUNS_TO_MEASURE[wildcards.run][0]].limits.timeout_s
    return 5 + math.ceil(limit_s / SECONDS_PER_MINUTE)


def logs_of(study_name):
    """Return the runs of a study that have a log or get one here; logs that no study names are welcome too."""
    present = {str(path.parent.relative_to(RAW)) for path in (RAW / study_name).glob("*/*/events.jsonl")}
    planned = {run for run, (study, _, _) in RUNS_TO_MEASURE.items() if study == study_name}
    return sorted(present | planned)


def records_of(study_name, kind):
    """Return the record files of a study: one a run where it is measured here, else one of all its logs."""
    runs = logs_of(study_name)
    if study_name in STUDIES and is_measured_here(STUDIES[study_name]):
        return [f"results/records/{run}.{kind}.parquet" for run in runs]
    return [f"results/records/{study_name}.{kind}.parquet"] if runs else []


def shipped_records(kind):
    """Return the records of every study that is for all readers: laptop's is of one machine, and has its own figure."""
    studies = {*STUDIES, *(path.name for path in RAW.glob("*") if path.is_dir())} - {"laptop"}
    return [record for name in sorted(studies) for record in records_of(name, kind)]


def contents_of(folder):
    """Return what a folder of data/external holds: runs, collectives, and the formats of its tables."""
    try:
        return read_source(EXTERNAL / folder).contents
    except ValueError as error:
        raise WorkflowError(str(error)) from error


EXTERNAL_CONTENTS = {}
for path in sorted(EXTERNAL.glob("*/source.yaml")):
    EXTERNAL_CONTENTS[path.parent.name] = contents_of(path.parent.name)


def external_records(kind, *contents):
    """Return the record files of every folder of data/external that holds one of the contents."""
    return [
        f"results/records/external/{folder}.{kind}.parquet"
        for folder, held in EXTERNAL_CONTENTS.items()
        if held & set(contents)
    ]


HELD_LOCKS = []


# In place of Snakemake's own lock, which profiles/default turns off: it survives a killed head.
onstart:
    try:
        HELD_LOCKS.append(hold_checkout(Path()))
    except ValueError as error:
        raise WorkflowError(str(error)) from error
