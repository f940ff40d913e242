"""A cluster as its people describe it: one file with what a job asks for, and what a node needs before its ranks."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from falloff.spec.reading import build, read_yaml, require_positive

# What else states each option of sbatch: a second value would win or lose depending on the version of Slurm.
_SET_BY_FIELD = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "reservation": "reservation",
    "exclusive": "exclusive",
    "gres": "gpu_resource, gpu_type and gpus_per_node",
    "gpus": "gpu_resource, gpu_type and gpus_per_node",
    "gpus-per-node": "gpu_resource, gpu_type and gpus_per_node",
    "cpus-per-task": "cpus_per_node",
    "mem": "memory_per_node_mb",
    "mem-per-cpu": "memory_per_node_mb",
    "mem-per-gpu": "memory_per_node_mb",
}
_SET_BY_CELL = "falloff takes it from the cell"
_SET_BY_LIMITS = "falloff takes it from startup_s and the limits of the study"
_SET_BY_PLUGIN = "Snakemake sets it to find its jobs"
_SET_ELSEWHERE = {
    "nodes": _SET_BY_CELL,
    "ntasks": _SET_BY_CELL,
    "ntasks-per-node": _SET_BY_CELL,
    "ntasks-per-gpu": "the script would run once a GPU",
    "gpus-per-task": "each rank would see one GPU and call it 0",
    "gpus-per-socket": "each rank would see its socket's GPUs alone",
    "cpus-per-gpu": "state cpus_per_node",
    "time": _SET_BY_LIMITS,
    "requeue": "profiles/slurm/config.yaml states it",
    "no-requeue": "profiles/slurm/config.yaml states it",
    "job-name": _SET_BY_PLUGIN,
    "output": _SET_BY_PLUGIN,
    "error": _SET_BY_PLUGIN,
    "parsable": _SET_BY_PLUGIN,
    "export": _SET_BY_PLUGIN,
    "comment": _SET_BY_PLUGIN,
    "chdir": _SET_BY_PLUGIN,
    "workdir": _SET_BY_PLUGIN,
    "array": _SET_BY_PLUGIN,
    "wrap": _SET_BY_PLUGIN,
    "clusters": _SET_BY_PLUGIN,
}
_SHORT_OPTIONS = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "M": "clusters",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
}
# What every launch states for itself; a site that states it too would end in the wrong job or on the wrong GPU.
_OWN_VARIABLES = re.compile(
    r"(SLURM|SRUN|SBATCH|FALLOFF|TORCHELASTIC)_|(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|"
    r"CUDA_VISIBLE_DEVICES|OMP_NUM_THREADS)$"
)
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, kw_only=True)
class Container:
    """The image in which ranks run; mounts are HOST:INSIDE[:OPTIONS], as both runtimes write them."""

    image: str
    runtime: Literal["apptainer", "pyxis"]
    mounts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.image:
            raise ValueError("image must name an image, found ''")
        for mount in self.mounts:
            if not re.fullmatch(r"/[^:]*(:/[^:]*(:[^:]+)?)?", mount):
                raise ValueError(f"mounts: HOST[:INSIDE[:OPTIONS]] with whole paths is needed, found {mount!r}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a cluster wants to be asked. None means that a job does not ask for it.

    gpus_per_node is how many ranks a node takes, with or without GPUs. Times are seconds, memory is MiB as Slurm
    counts it.
    """

    label: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gpus_per_node: int
    gpu_resource: str | None = "gpu"
    gpu_type: str | None = None
    cpus_per_node: int | None = None
    memory_per_node_mb: int | None = None
    exclusive: bool = False
    startup_s: float
    max_time_s: float | None = None
    setup: tuple[str, ...] = ()
    container: Container | None = None
    network_interface: str | None = None
    environment: dict[str, str]
    topology_command: str | None = None
    scratch: str | None = None
    runs_per_job: int = 1
    jobs_in_flight: int
    seconds_between_polls: int
    retries: int
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(
            self,
            "gpus_per_node",
            "cpus_per_node",
            "memory_per_node_mb",
            "startup_s",
            "max_time_s",
            "runs_per_job",
            "jobs_in_flight",
            "seconds_between_polls",
        )
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, found {self.retries}")
        self._check_words()
        self._check_gpus()
        if self.max_time_s is not None and self.max_time_s <= self.startup_s:
            raise ValueError(
                f"max_time_s is {self.max_time_s:g}, which leaves nothing after startup_s {self.startup_s:g}"
            )
        if self.scratch is not None and not self.scratch.startswith(("/", "$")):
            raise ValueError(f"scratch must be a whole path on the nodes, found {self.scratch!r}")
        _check_environment(self.environment, self.network_interface)
        _check_extra(self.extra)

    def _check_words(self) -> None:
        """Refuse what Slurm or the plugin would take apart: it reads these as words of a command line."""
        for name in ("label", "partition", "account", "qos", "reservation", "network_interface"):
            value = getattr(self, name)
            if value is not None and not re.fullmatch(r"[^\s'\";|&$`]+", value):
                raise ValueError(f"{name} must be one word, found {value!r}; null where it is not asked for")

    def _check_gpus(self) -> None:
        # as the plugin's pattern for gres has them
        for name, pattern in (("gpu_resource", r"[a-zA-Z0-9_]+"), ("gpu_type", r"[a-zA-Z0-9_.]+")):
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, value):
                raise ValueError(f"{name} must be letters, digits and _, as `sinfo -o %G` shows it, found {value!r}")
        if self.gpu_type is not None and self.gpu_resource is None:
            raise ValueError(f"gpu_type is {self.gpu_type!r} where gpu_resource is null, so that no GPU is asked for")


def read_site(path: Path) -> Site:
    """Return the site that the YAML file describes; ValueError, one sentence, for what cannot be meant."""
    raw = read_yaml(path)
    if not isinstance(raw, Mapping):
        raise ValueError(f"{path}: a mapping is needed, found {raw!r}")
    environment = raw.get("environment")
    return build(Site, {**raw, "environment": _texts(environment or {}, f"{path}: environment")}, str(path))


def _texts(environment: Any, where: str) -> Any:
    """Return variables with numbers as the text that a shell would see."""
    if not isinstance(environment, Mapping):
        return environment
    for name, value in environment.items():
        # YAML reads on, off, yes and no as bool, and no program reads True back
        if isinstance(value, bool):
            raise ValueError(f"{where}: {name} must stand in quotes, since YAML reads it as {value}")
    return {name: str(value) if isinstance(value, int | float) else value for name, value in environment.items()}


def _check_environment(environment: Mapping[str, str], network_interface: str | None) -> None:
    for name in environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"environment: {name!r} is no name of a variable")
        if _OWN_VARIABLES.match(name):
            raise ValueError(f"environment: {name} is set by each launch and cannot be a site's")
        if network_interface is not None and name in INTERFACE_VARIABLES:
            raise ValueError(f"environment: {name} is set from network_interface; state one of the two")


def _check_extra(extra: tuple[str, ...]) -> None:
    """Refuse options that something else sets, in any of the spellings that sbatch takes."""
    for entry in extra:
        for word in shlex.split(entry)[:1]:
            if not re.fullmatch(r"--[a-z].*|-[a-zA-Z].*", word):
                raise ValueError(f"extra: an option of sbatch is needed, such as --nice=100, found {entry!r}")
        for word in shlex.split(entry):
            if reason := _refusal(word):
                raise ValueError(f"extra: {word!r} is refused: {reason}")


def _refusal(word: str) -> str | None:
    """Return why an option is not a site's to state, None for one that is."""
    if word.startswith("--"):
        given = word[2:].partition("=")[0]
        # sbatch takes a beginning for the whole option
        names = [name for name in (*_SET_BY_FIELD, *_SET_ELSEWHERE) if name.startswith(given)]
    elif word.startswith("-"):
        names = [_SHORT_OPTIONS[word[1]]] if word[1:2] in _SHORT_OPTIONS else []
    else:
        names = []
    if not names:
        return None
    name = min(names, key=len)
    return f"state {_SET_BY_FIELD[name]}" if name in _SET_BY_FIELD else _SET_ELSEWHERE[name]
