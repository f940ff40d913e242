"""Over which time a reading of power averages, which depends on the reading and on the GPU's generation."""

import re

from falloff.ingest.power_samples import Averaging

TRAILING_S = 1.0
# "On Ampere (except GA100) or newer GPUs, the API returns power averaged over 1 sec interval. On GA100 and older
# architectures, instantaneous power is returned." nvmlDeviceGetPowerUsage,
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
_GA100 = re.compile(r"\b(?:a100x?|a800|a30x?|cmp 170hx|ga100)\b")
_NEWER = re.compile(
    r"\b(?:g?h(?:100|200|800|20)|g?b(?:100|200|300)|l(?:2|4|20|40s?|40g)|"
    r"a(?:2|10g?|10m|16|40|800m)|rtx a\d{3,4}|a[2-6]\d00|"
    r"rtx (?:30|40|50)\d\d|rtx (?:pro )?\d{4}(?: sff)? (?:ada|blackwell)|rtx pro \d{4}|ada generation|ad10\d|ga10\d)",
)
_OLDER = re.compile(
    r"\b(?:v100s?|p100|p40|p4|p6|t4g?|k80|k40|k20x?|m40|m60|m10|gtx|titan|quadro|rtx 20\d\d|tesla|gv100|tu10\d)",
)
# Yang, Adamek, Armour, https://arxiv.org/abs/2312.02741: A100 and H100 sensors see 25 % of the time.
_PART_TIME = re.compile(r"\b(?:a100|h100)\b")
PART_TIME_SHARE = 0.25


def averaging_s(averaging: Averaging, gpu_name: str | None) -> float | None:
    """Return the seconds over which a reading averages backwards, 0 for an instantaneous one, None if not known."""
    if averaging in ("instant", "since the reading before"):
        return 0.0
    if averaging == "average":
        return TRAILING_S
    if averaging == "by generation" and gpu_name is not None:
        name = gpu_name.casefold()
        if _GA100.search(name):
            return 0.0
        if _NEWER.search(name):
            return TRAILING_S
        return 0.0 if _OLDER.search(name) else None
    return None


def averaging_words(averaging: Averaging, gpu_name: str | None) -> str:
    """Return in words what a reading is; an empty text where nothing tells and the meter's own name has to do."""
    if averaging != "by generation":
        return "" if averaging == "not stated" else averaging
    seconds = averaging_s(averaging, gpu_name)
    if seconds is None:
        return "default reading, of this GPU not known whether instantaneous or a 1 s average"
    return "default reading, a 1 s average on this GPU" if seconds else "default reading, instantaneous on this GPU"


def is_seen_part_time(gpu_name: str | None) -> bool:
    """Return whether the GPU's power sensor is known to see only PART_TIME_SHARE of the time."""
    return gpu_name is not None and _PART_TIME.search(gpu_name.casefold()) is not None
