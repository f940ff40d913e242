"""Each framework's log is told by its content alone, and no framework takes another's for its own."""

import typing
from pathlib import Path

import pytest

from falloff.ingest.frameworks import FRAMEWORKS, framework_of, read_framework_log
from falloff.ingest.logtext import HEAD_CHARS, clean, read_head
from falloff.ingest.recognise import read_any
from falloff.spec.source import Framework

FOLDERS = {
    "torchtitan": "torchtitan",
    "nanochat": "nanochat",
    "olmo_core": "olmo-core",
    "composer": "composer",
    "nemo": "nemo",
    "llamafactory": "llamafactory",
    "instructlab": "instructlab",
    "nanotron": "nanotron",
    "deepspeed": "deepspeed",
    "megatron_lm": "megatron-lm",
    "torchtune": "torchtune",
    "maxtext": "maxtext",
    "llm.c": "llm.c",
    "modded_nanogpt": "modded-nanogpt",
    "internevo": "internevo",
    "mlperf": "mlperf",
    "transformers": "transformers",
}
LOGS = [
    (path, framework)
    for folder, framework in FOLDERS.items()
    for path in sorted((Path(__file__).parents[1] / "data" / folder).iterdir())
    if path.name != "SOURCE.md"
]


@pytest.mark.parametrize(("path", "framework"), LOGS, ids=lambda value: getattr(value, "name", value))
def test_a_real_log_is_its_frameworks(path: Path, framework: str) -> None:
    head = clean(read_head(path, HEAD_CHARS)[0])
    assert framework_of(head) == framework
    others = {name for name, other in FRAMEWORKS.items() if name != framework and other.is_log(head)}
    # Megatron's forks over DeepSpeed print the lines of both, and Megatron's say more
    assert others <= ({"deepspeed"} if framework == "megatron-lm" else set())


@pytest.mark.parametrize(("path", "framework"), LOGS, ids=lambda value: getattr(value, "name", value))
def test_a_real_log_that_comes_alone_is_a_record_or_several(path: Path, framework: str) -> None:
    reading = read_any(path)
    assert reading.kind == framework
    assert reading.runs
    assert all(reading.steps[run.record_id] or run.outcome != "killed" for run in reading.runs)


def test_every_framework_that_a_source_may_name_is_read() -> None:
    assert set(typing.get_args(Framework)) == {"auto", *FRAMEWORKS}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step: 5",
        "loss: 3.5",
        '{"loss": 3.5, "step": 5}',
        "iter 5: loss 3",
        "[batch=1/5] hello",
        "Epoch 0:  12%|#  | 12/100 [00:10<01:00, 1.2it/s, loss=0.5]",
        "  key=value",
        "Epoch: 0, Step: 77, Rank: 0, loss = 0.92",
    ],
)
def test_what_could_be_anybodys_is_nobodys(text: str) -> None:
    assert framework_of(text) is None


def test_a_log_of_another_framework_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("nothing\n")
    for name in FRAMEWORKS:
        with pytest.raises(ValueError, match=r"a\.log: "):
            read_framework_log(path, name)
