"""What there is: the studies that are on, their runs and records, what data/external holds, and who is at work."""

from pathlib import Path

from falloff.head import attend
from falloff.launch import num_attached_gpus
from falloff.ownership import hold_checkout
from falloff.provenance import code_of
from falloff.spec.claims import read_claims, read_questions, tables_of
from falloff.spec.hardware import read_all_hardware
from falloff.spec.reading import build
from falloff.spec.settings import Settings
from falloff.spec.site import read_site
from falloff.spec.source import read_source
from falloff.spec.study import read_study

NETWORKS = Path("config/models")
RAW = Path("data/raw")
EXTERNAL = Path("data/external")
HARDWARE_FILES = sorted(str(path) for path in Path("config/hardware").glob("*.yaml"))
NETWORK_FILES = sorted(str(path) for path in NETWORKS.glob("*.yaml"))
CLUSTER_FILES = sorted(str(path) for path in Path("config/clusters").glob("*.yaml"))
CALIBRATION_FILES = sorted(str(path) for path in Path("config/perfmodel").glob("*.json"))
# prices, failure rates and loss laws, each with its source
ASSUMPTION_FILES = sorted(str(path) for path in Path("config/assumptions").glob("*.yaml"))
# what the model's collectives are fitted to
COLLECTIVE_FILES = [
    str(EXTERNAL / "published-collectives" / "collectives.csv"),
    str(EXTERNAL / "nccl-allreduce-readoff" / "nccl_allreduce_readoff.csv"),
    str(EXTERNAL / "torchtitan-h200x2" / "collectives_gemm.txt"),
]
TRAINING_CELLS = str(EXTERNAL / "published-training" / "training_cells.csv")

# Figures of the model whose scripts take the same: predictions of cells that no fit had seen, and our runs.
HELD_OUT = [
    "validation",
    "memory",
    "extrapolation",
]
PREDICTED = [
    "execution_time",
    "power_per_token",
]
# Figures of the model beside what was measured and printed: their tables come about alike (tabulate_modelled).
MODELLED = [
    "one_h200",
    "parallelism_mix",
    "tensor_parallel",
    "best_layout",
    "generations",
    "model_size",
    "node_size",
    "context_length",
    "context_parallel",
    "hybrid_sharding",
    "marginal_returns",
    "goodput",
    "fleet",
]

try:
    SETTINGS = build(Settings, config, "config")
    SITE_FILE = SETTINGS.find_site_file(Path("profiles"))
    SITE = read_site(SITE_FILE) if SITE_FILE else None
    # elsewhere the head's own GPUs say nothing of the nodes'
    NUM_GPUS = num_attached_gpus(SETTINGS.device) if SETTINGS.site == "local" else 0
    STUDIES = {name: read_study(Path(f"config/studies/{name}.yaml"), NETWORKS, NUM_GPUS) for name in SETTINGS.studies}
    # the tables by which claims are decided and questions answered
    CLAIM_TABLES = tables_of(read_claims(Path("config/claims.yaml")), read_questions(Path("config/questions.yaml")))
    # read here only so that a mistake in one is said at once and not by the first job that needs it
    read_all_hardware(Path("config/hardware"))
except ValueError as error:
    raise WorkflowError(str(error)) from error

SITES = {"local", SETTINGS.site, *(path.parent.name for path in Path("profiles").glob("*/config.yaml"))} - {"default"}


def is_measured_here(study):
    return SETTINGS.site in study.measure_on


def is_sealed(run):
    return (RAW / run / "events.jsonl").is_file()


# Of studies for several sites one is measured here and the others are not, as it should be.
MEASURES_NOTHING = not any(map(is_measured_here, STUDIES.values()))

for study in STUDIES.values():
    for refused in study.refused if is_measured_here(study) else ():
        logger.warning(f"refused: {refused.reason}")
    if MEASURES_NOTHING:
        sites = ", ".join(study.measure_on) or "nowhere"
        logger.warning(f"study {study.name} is not measured on site {SETTINGS.site!r}; its measure_on: {sites}")
    for site in set(study.measure_on) - SITES:
        logger.warning(f"study {study.name}: measure_on names {site!r}; known here: {', '.join(sorted(SITES))}")


def logs_of(study_name):
    """Return the runs of a study that have a log or get one here; logs that no study names are welcome too."""
    present = {str(path.parent.relative_to(RAW)) for path in (RAW / study_name).glob("*/*/events.jsonl")}
    planned = {name for name, run in RUNS_TO_MEASURE.items() if run.study == study_name}
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


# A lock in place of Snakemake's own, which profiles/default turns off: it survives a killed head.
onstart:
    try:
        HELD_LOCKS.append(hold_checkout(Path()))
        if not workflow.local_exec:
            if SETTINGS.site == "local":
                raise ValueError(
                    "jobs would be submitted and site is 'local'; state --config site=slurm with the rest"
                )
            if SITE and workflow.executor_plugin.name == "slurm":
                attend(workflow, SITE, RUNS, PACKS)
    except (OSError, ValueError) as error:
        raise WorkflowError(str(error)) from error
