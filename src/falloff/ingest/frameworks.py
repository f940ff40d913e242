"""Every framework whose training log is read: how its log is told by content, and how it reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from falloff.ingest.composer import COMPOSER, is_composer_log
from falloff.ingest.deepspeed import DEEPSPEED, is_deepspeed_log
from falloff.ingest.fms_fsdp import FMS_FSDP, is_fms_fsdp_log
from falloff.ingest.huggingface import HUGGINGFACE, is_huggingface_log
from falloff.ingest.instructlab import INSTRUCTLAB, is_instructlab_log
from falloff.ingest.llamafactory import LLAMAFACTORY, is_llamafactory_log
from falloff.ingest.logtext import without_prefixes
from falloff.ingest.megatron import MEGATRON, is_megatron_log
from falloff.ingest.megatron_progress import MEGATRON_PROGRESS, is_progress_log
from falloff.ingest.mlperf import MLPERF, is_mlperf_log
from falloff.ingest.nanochat import NANOCHAT, is_nanochat_log
from falloff.ingest.nanotron import NANOTRON, is_nanotron_log
from falloff.ingest.nemo import NEMO, is_nemo_log
from falloff.ingest.olmo_core import OLMO_CORE, is_olmo_core_log
from falloff.ingest.step_lines import (
    INTERNEVO,
    LLM_C,
    MAXTEXT,
    MODDED_NANOGPT,
    TORCHTUNE,
    StepLine,
    is_step_line_log,
    system_of,
)
from falloff.ingest.torchtitan import TORCHTITAN, is_torchtitan_log
from falloff.ingest.training_log import System, TrainingLog
from falloff.ingest.training_runs import read_training_log


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One framework: its log in words, whether the head of a file (escapes removed) is its, and its System."""

    title: str
    is_log: Callable[[str], bool]
    system: System


def _of_step_lines(trainer: StepLine) -> Framework:
    return Framework(
        title=f"{trainer.name} log", is_log=lambda text: is_step_line_log(trainer, text), system=system_of(trainer)
    )


# In the order in which they are asked: a log of one that builds on another is of the one that comes first.
_ALL = (
    Framework(title="TorchTitan log", is_log=is_torchtitan_log, system=TORCHTITAN),
    Framework(title="Megatron log", is_log=is_megatron_log, system=MEGATRON),
    Framework(title="Megatron progress.txt", is_log=is_progress_log, system=MEGATRON_PROGRESS),
    Framework(title="Nanotron log", is_log=is_nanotron_log, system=NANOTRON),
    Framework(title="DeepSpeed log", is_log=is_deepspeed_log, system=DEEPSPEED),
    Framework(title="nanochat log", is_log=is_nanochat_log, system=NANOCHAT),
    Framework(title="OLMo-core log", is_log=is_olmo_core_log, system=OLMO_CORE),
    Framework(title="fms-fsdp log", is_log=is_fms_fsdp_log, system=FMS_FSDP),
    Framework(title="Composer log", is_log=is_composer_log, system=COMPOSER),
    Framework(title="NeMo log", is_log=is_nemo_log, system=NEMO),
    Framework(title="LlamaFactory log", is_log=is_llamafactory_log, system=LLAMAFACTORY),
    Framework(title="instructlab log", is_log=is_instructlab_log, system=INSTRUCTLAB),
    *(_of_step_lines(trainer) for trainer in (TORCHTUNE, MAXTEXT, LLM_C, MODDED_NANOGPT, INTERNEVO)),
    Framework(title="MLPerf log", is_log=is_mlperf_log, system=MLPERF),
    Framework(title="Hugging Face Trainer log", is_log=is_huggingface_log, system=HUGGINGFACE),
)
FRAMEWORKS: Mapping[str, Framework] = {framework.system.name: framework for framework in _ALL}


def framework_of(head: str) -> str | None:
    """Return the name of the framework whose log begins with this text, None for none; the first that knows it."""
    found = next((name for name, framework in FRAMEWORKS.items() if framework.is_log(head)), None)
    if found is not None:
        return found
    bare = without_prefixes(head)
    return next((name for name, framework in FRAMEWORKS.items() if framework.is_log(bare)), None)


def read_framework_log(path: Path, name: str) -> list[TrainingLog]:
    """Return the runs of a log of the framework of that name; errors as of read_training_log."""
    return read_training_log(path, FRAMEWORKS[name].system)
