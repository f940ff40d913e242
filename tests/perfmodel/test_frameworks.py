import pytest

from falloff.perfmodel.frameworks import NAMES, habits_of


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("Megatron-DeepSpeed 3D", "megatron-deepspeed"),
        ("Megatron-LM + DeepSpeed ZeRO-3 (old branch)", "megatron-deepspeed"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("Composer/llm-foundry", "composer"),
        ("NVIDIA NeMo Framework Release 25.09", "megatron"),
        ("NeMo (DGX Cloud recipe)", "megatron"),
        ("torchtitan (FSDP2)", "torchtitan"),
        ("nanotron", "nanotron"),
        ("something new", "other"),
        ("", "other"),
    ],
)
def test_a_program_is_known_by_a_word_of_its_name(framework, name):
    assert habits_of(framework).name == name
    assert name in NAMES


def test_every_habit_says_where_it_is_from():
    for framework in ("megatron", "nemo", "deepspeed", "composer", "torchtitan", "maxtext", "meta internal", ""):
        assert len(habits_of(framework).source) > 20


def test_megatron_before_its_core_knew_neither_sequence_parallelism_nor_flash_attention():
    old, new = habits_of("Megatron-LM", 2021), habits_of("Megatron-LM", 2024)
    assert not old.sequence_parallel
    assert not old.flash_attention
    assert new.sequence_parallel
    assert new.flash_attention
