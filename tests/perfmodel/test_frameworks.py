import pytest

from falloff.perfmodel.frameworks import BY_NAME, NAMES, compiles_loss, habits_of


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("Megatron-DeepSpeed 3D", "megatron-deepspeed"),
        ("Megatron-LM + DeepSpeed ZeRO-3 (old branch)", "deepspeed-v0.3"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("Composer/llm-foundry", "composer"),
        ("NVIDIA NeMo Framework Release 25.09", "megatron"),
        ("NeMo (DGX Cloud recipe)", "megatron"),
        ("torchtitan (FSDP2)", "torchtitan"),
        ("nanotron", "nanotron"),
        ("OneFlow-GPT", "oneflow"),
        ("Colossal-AI", "other"),
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


def test_torchtitan_compiled_its_loss_again_from_torch_2_8_on():
    titan = habits_of("torchtitan")
    assert not compiles_loss(titan, "torch nightly 2024-12-23", 2024)
    assert not compiles_loss(titan, "torch 2.7.0a0, torchao 0.10.0", 2025)
    assert compiles_loss(titan, "torch 2.9.0.dev20250815", 2025)
    assert compiles_loss(habits_of("MaxText"), "", 2024)


def test_programs_do_by_default_what_their_scripts_do():
    assert habits_of("Colossal-AI").recompute == "full"
    assert habits_of("Megatron-DeepSpeed 0.11.1", 2023).recompute == "none"
    assert not habits_of("PaddleNLP / paddle 2.5.1", 2023).sequence_parallel
    assert not habits_of("OneFlow-GPT", 2021).flash_attention


def test_programs_have_eras():
    first, fused, core = (habits_of("Megatron-LM", year) for year in (2021, 2022, 2024))
    assert first.name == fused.name == "megatron-v2"
    assert core.name == "megatron"
    assert (first.accumulates_in_product, fused.accumulates_in_product) == (False, True)
    assert habits_of("DeepSpeed ZeRO-3", 2021).name == "deepspeed-v0.3"
    assert habits_of("DeepSpeed 0.11.1", 2023).name == "deepspeed"
    assert habits_of("NVIDIA NeMo Framework Release 23.09", 2022).replays_graphs


def test_the_rounds_of_mlperf_have_habits_of_their_own():
    third, fourth = (habits_of("NVIDIA NeMo Framework Release 23.09", year) for year in (2023, 2024))
    assert (third.float8_gather, fourth.float8_gather) == (False, True)
    assert third.reduce_bytes == fourth.reduce_bytes == 2
    assert habits_of("NVIDIA NeMo Framework Release 25.09", 2025).stages_within
    assert not habits_of("NVIDIA NeMo Framework Release 25.04", 2025).stages_within


def test_a_name_of_ours_is_the_program_and_no_submission_of_it():
    assert BY_NAME["megatron"] is habits_of("Megatron-LM", 2024)
    assert not BY_NAME["megatron"].replays_graphs


def test_nemo_of_2022_kept_its_activations():
    assert habits_of("NeMo Megatron", 2022).recompute == "none"
    assert habits_of("Megatron-LM", 2022).recompute == "full"
