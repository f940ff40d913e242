"""NeMo Automodel's line a step, read by field name: 'step 9 | epoch 0 | loss 0.69 | ... | tps 11278.56(1409.82/gpu)'.

tps is of all GPUs, and behind it stands that of one. Its tokens are all that enter the network; those that enter the
loss are num_label_tokens.
"""

import re

from falloff.ingest.logtext import Line, moment_of, number_of
from falloff.ingest.training_log import LoggedStep
from falloff.units import GIB

LINE = re.compile(r"(?:^|\| )step (?P<step>\d{1,15}) \| epoch \d+ \| (?P<rest>loss \S.*)$", re.MULTILINE)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \|")
_RATE = re.compile(r"(?P<of_all>\d+(?:\.\d+)?)(?:\((?P<of_one>\d+(?:\.\d+)?)/gpu\))?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?) GiB")
_PLACED = frozenset({"loss", "grad_norm", "mem", "tps"})


def parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    """Return the step of a whole line and the names that all lines have, None for one that is cut; as System.parse."""
    match = LINE.search(line.text)
    if match is None or not line.is_ended:
        return None
    halves = (pair.partition(" ") for pair in match["rest"].split(" | "))
    found = {name: value for name, _, value in halves}
    rate, memory = _RATE.fullmatch(found.get("tps", "")), _MEMORY.fullmatch(found.get("mem", ""))
    if rate is None:
        return None
    stamp = _STAMP.match(line.text)
    step = LoggedStep(
        step=int(match["step"]),
        time=moment_of(stamp[1]) if stamp else None,
        loss=number_of(found["loss"]),
        grad_norm=number_of(found.get("grad_norm", "")),
        memory_bytes=float(memory[1]) * GIB if memory else None,
        tokens_per_s=float(rate["of_all"]) or None,
        tokens_per_gpu_s=float(rate["of_one"]) or None if rate["of_one"] else None,
        more={name: value for name, value in found.items() if name not in _PLACED},
    )
    return step, frozenset(found)
