"""A study is read into cells with ids that do not move."""

import dataclasses
from pathlib import Path

import pytest

from falloff.spec import cell as cell_module
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.study import Study, read_study

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "config" / "models"
FIXED = "fixed: {network: llama-5m, seq: 64, global_batch: 8, microbatch: 2}\n"
HEAD = "question: Does it work?\nmeasure_on: [local]\n" + FIXED


def read_text(folder: Path, text: str, num_gpus: int = 0) -> Study:
    path = folder / "small.yaml"
    path.write_text(text)
    return read_study(path, MODELS, num_gpus=num_gpus)


def layouts(study: Study) -> list[str]:
    return [entry.cell.layout.label for entry in study.cells if isinstance(entry.cell, TrainCell)]


def test_a_grid_is_the_product_of_its_axes(tmp_path: Path) -> None:
    study = read_text(tmp_path, HEAD + "grids: [{grid: {seq: [32, 64], layout: [{dp_shard: 1}, {dp_shard: 2}]}}]\n")
    assert [(c.cell.seq, c.cell.layout.ranks) for c in study.cells] == [(32, 1), (32, 2), (64, 1), (64, 2)]
    assert len({c.cell_id for c in study.cells}) == 4


def test_the_study_is_named_after_its_file_and_keeps_its_question(tmp_path: Path) -> None:
    study = read_text(tmp_path, HEAD + "scaling: strong\nlimits: {timeout_s: 5}\n")
    assert (study.name, study.question, study.scaling, study.measure_on) == (
        "small",
        "Does it work?",
        "strong",
        ("local",),
    )
    assert study.limits.timeout_s == 5.0
    assert study.cells == ()


def test_a_grids_fixed_values_go_before_the_studys(tmp_path: Path) -> None:
    study = read_text(tmp_path, HEAD + "grids: [{fixed: {seq: 32}, grid: {layout: [{}]}}]\n")
    assert study.cells[0].cell.seq == 32


def test_a_field_of_a_cell_may_be_a_list_in_fixed_and_on_an_axis(tmp_path: Path) -> None:
    study = read_text(
        tmp_path,
        HEAD
        + """grids:
  - {fixed: {layout: {dp_shard: 2}, traced_ranks: [1]}, grid: {seq: [32, 64]}}
  - {fixed: {layout: {dp_shard: 2}}, grid: {traced_ranks: [[0], [0, 1]]}}
""",
    )
    assert [cell.cell.traced_ranks for cell in study.cells] == [(1,), (1,), (0,), (0, 1)]
    assert len({cell.cell_id for cell in study.cells}) == 4


def test_excludes_take_cells_out_and_includes_add_some(tmp_path: Path) -> None:
    study = read_text(
        tmp_path,
        HEAD
        + """grids:
  - grid: {seq: [32, 64], layout: [{dp_shard: 1}, {dp_shard: 2}]}
    exclude: [{seq: 64, layout: {dp_shard: 2}}]
    include: [{seq: 128, layout: {dp_shard: 4}}]
""",
    )
    assert [(c.cell.seq, c.cell.layout.ranks) for c in study.cells] == [(32, 1), (32, 2), (64, 1), (128, 4)]


def test_an_exclude_names_a_layout_in_whatever_words(tmp_path: Path) -> None:
    grid = "{grid: {layout: [{tp: 2}, {dp_shard: 2}]}, exclude: [{layout: {tp: 2, pp: 1}}]}"
    assert layouts(read_text(tmp_path, HEAD + f"grids: [{grid}]\n")) == ["dp_shard 2"]


def test_a_study_without_a_question_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"small.yaml: question must say what the study asks, found ' '"):
        read_text(tmp_path, HEAD.replace("Does it work?", "' '"))


def test_includes_alone_need_no_axes(tmp_path: Path) -> None:
    study = read_text(tmp_path, HEAD + "grids: [{include: [{layout: {tp: 2}}]}]\n")
    assert layouts(study) == ["tp 2"]


def test_repeats_are_counted_from_one_and_are_no_part_of_a_cell(tmp_path: Path) -> None:
    three = read_text(tmp_path, HEAD + "grids: [{repeats: 3, grid: {layout: [{dp_shard: 2}]}}]\n")
    one = read_text(tmp_path, HEAD + "grids: [{grid: {layout: [{dp_shard: 2}]}}]\n")
    assert [repeat for _, repeat in three.runs()] == [1, 2, 3]
    assert three.cells[0].cell_id == one.cells[0].cell_id


def test_a_study_that_gains_a_value_keeps_the_ids_of_its_old_cells(tmp_path: Path) -> None:
    before = read_text(tmp_path, HEAD + "grids: [{grid: {layout: [{dp_shard: 1}, {dp_shard: 2}]}}]\n")
    after = read_text(tmp_path, HEAD + "grids: [{grid: {layout: [{dp_shard: 4}, {dp_shard: 1}, {dp_shard: 2}]}}]\n")
    assert {c.cell_id for c in before.cells} < {c.cell_id for c in after.cells}


def test_an_id_does_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    ids = [
        read_text(tmp_path, HEAD + f"grids: [{{grid: {{layout: [{layout}]}}}}]\n").cells[0].cell_id
        for layout in ("{dp_shard: 2, dp_replicate: 2}", "{dp_replicate: 2, dp_shard: 2}")
    ]
    assert ids[0] == ids[1]


def test_a_changed_default_does_not_change_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + "grids: [{grid: {layout: [{dp_shard: 2}]}}]\n"
    before = read_text(tmp_path, text).cells[0]
    changed = dataclasses.make_dataclass(
        "TrainCell",
        [("measured_steps", int, dataclasses.field(default=20))],
        bases=(cell_module.TrainCell,),
        frozen=True,
        kw_only=True,
    )
    monkeypatch.setattr("falloff.spec.study.TrainCell", changed)
    after = read_text(tmp_path, text).cells[0]
    assert (before.cell.measured_steps, after.cell.measured_steps) == (10, 20)
    assert before.cell_id == after.cell_id


def test_the_ids_of_the_laptop_study_have_not_moved() -> None:
    # its logs are found by these; a changed id measures the cell anew
    study = read_study(ROOT / "config" / "studies" / "laptop.yaml", MODELS)
    assert [c.cell_id for c in study.cells][:4] == [
        "llama-5m-dp_shard1-5bf13c86",
        "llama-5m-dp_shard2-79881de5",
        "llama-5m-dp_shard4-31a4ebfc",
        "llama-5m-dp_replicate2-dp_shard2-6e0b582e",
    ]
    assert len(study.cells) == 12
    assert study.refused == ()
    assert sum(1 for _ in study.runs()) == 18


def test_the_laptop_study_holds_the_batch_and_has_a_microbatch_for_each_stage() -> None:
    study = read_study(ROOT / "config" / "studies" / "laptop.yaml", MODELS)
    trained = [c.cell for c in study.cells if isinstance(c.cell, TrainCell)]
    assert {cell.global_batch for cell in trained} == {8}
    assert all(cell.num_microbatches >= cell.layout.pp for cell in trained)
    assert {(c.network.name, c.tokens_per_step) for c in trained} == {("llama-5m", 512), ("llama-25m", 256)}


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ("[{grid: {layout: [{tp: 2}, {tp: 2}]}}]", "is stated twice"),
        ("[{grid: {layout: [{tp: 2}]}}, {grid: {layout: [{tp: 2}]}}]", "grid 2: the cell .* is stated twice"),
        ("[{grid: {layout: [{tp: 2}, {tp: 2, pp: 1}]}}]", "is stated twice, the other time in other words"),
        ("[{grid: {layout: [{tp: 2}]}, include: [{layout: {tp: 2}}]}]", "is stated twice"),
        ("[{grid: {layout: [{tp: 3}, {tp: 3}]}}]", "is stated twice"),
    ],
)
def test_a_cell_stated_twice_is_an_error(tmp_path: Path, grids: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_text(tmp_path, HEAD + f"grids: {grids}\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gird: []", r"unknown key 'gird' \(did you mean 'grids'\?\)"),
        ("limits: {timeout: 5}", r"limits: unknown key 'timeout' \(did you mean 'timeout_s'\?\)"),
        ("limits: {timeout_s: -5}", "limits: timeout_s must be above zero and finite, found -5.0"),
        ("limits: {timeout_s: .nan}", "limits: timeout_s must be above zero and finite, found nan"),
        ("scaling: strng", "scaling is 'strng'; allowed: strong, weak, none"),
        ("grids: {grid: {}}", "grids: a list of mappings is needed"),
        ("grids: [1]", "grids: a list of mappings is needed, found 1"),
        ("grids: [{repaets: 3}]", r"grid 1: unknown key 'repaets' \(did you mean 'repeats'\?\)"),
        ("grids: [{repeats: 0, include: [{}]}]", "grid 1: repeats must be a whole number from 1 on, found 0"),
        ("grids: [{repeats: 2.5, include: [{}]}]", "grid 1: repeats must be a whole number from 1 on"),
        ("grids: [{repeats: true, include: [{}]}]", "grid 1: repeats must be a whole number from 1 on"),
        ("grids: [{fixed: 3}]", "grid 1: fixed: a mapping is needed, found 3"),
        ("grids: [{grid: [1]}]", "grid 1: grid: a mapping of lists is needed"),
        ("grids: [{grid: {seq: 64}}]", r"grid 1: grid.seq: a list of values is needed, found 64"),
        ("grids: [{grid: {seq: []}}]", r"grid 1: grid.seq: a list of values is needed, found \[\]"),
        ("grids: [{include: {seq: 1}}]", "grid 1: include: a list of mappings is needed"),
        ("grids: [{include: [7]}]", "grid 1: include: a list of mappings is needed, found 7"),
        ("grids: [{exclude: [7]}]", "grid 1: exclude: a list of mappings is needed, found 7"),
        (
            "grids: [{grid: {layout: [{}]}, exclude: [{layuot: {}}]}]",
            r"grid 1: exclude: unknown key 'layuot' \(did you mean 'layout'\?\)",
        ),
        ("grids: [{grid: {layout: [{}]}, exclude: [{seq: 65}]}]", "grid 1: exclude 1 matches no cell of the grid"),
        (
            "grids: [{grid: {layout: [{tp: 2}, {}]}, exclude: [{layout: {tp: 2}}, {layout: {tp: 4}}]}]",
            r"exclude 2 matches no cell of the grid, found \{'layout': \{'tp': 4\}\}",
        ),
        ("grids: [{grid: {layout: [{}]}, exclude: [{layout: {t: 2}}]}]", "grid 1: layout: unknown key 't'"),
        ("grids: [{include: [{layout: {}, seed: -5}]}]", "grid 1: seed must not be negative and be finite, found -5"),
        ("grids: [{grid: {sq: [1], layout: [{}]}}]", r"grid 1: unknown key 'sq' \(did you mean 'seq'\?\)"),
        ("grids: [{grid: {layout: [{dp_shrad: 2}]}}]", r"grid 1: layout: unknown key 'dp_shrad'"),
        ("grids: [{grid: {layout: [tp2]}}]", "grid 1: layout: a mapping is needed, found 'tp2'"),
        ("grids: [{include: [{layout: {}, seq: -64}]}]", "grid 1: seq must be above zero and finite, found -64"),
        ("grids: [{include: [{layout: {}, seq: 0}]}]", "grid 1: seq must be above zero"),
        ("grids: [{include: [{layout: {}, learning_rate: .nan}]}]", "grid 1: learning_rate must be above zero"),
        ("grids: [{include: [{layout: {}, seq: 2024-01-01}]}]", "grid 1: seq: int is needed"),
        ("grids: [{include: [{layout: {tp: -1}}]}]", "grid 1: layout: tp must be above zero and finite, found -1"),
        ("grids: [{include: [{layout: {}, network: nope}]}]", "network 'nope' has no file in .*known: .*llama-5m"),
        ("grids: [{include: [{layout: {}, network: 7}]}]", "grid 1: network: the name of a file"),
        ("collectives: [{num_processes: 2}]", "collectives 1: collectives, message_bytes must be stated"),
        ("collectives: [{num_proceses: 2}]", "collectives 1: unknown key 'num_proceses'"),
    ],
)
def test_a_mistake_in_a_study_is_a_sentence_that_says_where(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_text(tmp_path, HEAD + text + "\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1\n- 2\n", "just words"])
def test_a_file_that_is_no_study_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"small.yaml: a mapping is needed"):
        read_text(tmp_path, text)


def test_a_layout_that_cannot_run_is_refused_and_the_rest_stays(tmp_path: Path) -> None:
    study = read_text(tmp_path, HEAD + "grids: [{grid: {layout: [{tp: 3}, {tp: 2}, {cp: 3}]}}]\n")
    assert layouts(study) == ["tp 2"]
    assert [refused.stated["layout"] for refused in study.refused] == [{"tp": 3}, {"cp": 3}]
    assert "heads 8 is not divisible by tp 3" in study.refused[0].reason
    assert "seq 64 is not divisible by twice cp 3" in study.refused[1].reason


def test_cells_larger_than_the_machines_gpus_are_refused(tmp_path: Path) -> None:
    text = HEAD + "grids: [{grid: {layout: [{dp_shard: 1}, {dp_shard: 2}, {dp_shard: 4}]}}]\n"
    study = read_text(tmp_path, text, num_gpus=2)
    assert layouts(study) == ["one rank", "dp_shard 2"]
    assert "4 processes need as many GPUs, this machine has 2" in study.refused[0].reason
    assert len(read_text(tmp_path, text).cells) == 3


def test_a_sweep_of_collectives_is_a_cell_of_its_own(tmp_path: Path) -> None:
    sweep = "{num_processes: 2, collectives: [all_reduce], message_bytes: [1024, 2048], repeats: 2}"
    study = read_text(tmp_path, HEAD + f"collectives: [{sweep}]\n")
    assert study.cells[0].cell == CollectivesCell(
        num_processes=2, collectives=("all_reduce",), message_bytes=(1024, 2048)
    )
    assert study.cells[0].repeats == 2
    assert study.cells[0].cell_id.startswith("collectives-2-")


def test_every_study_that_ships_can_be_read() -> None:
    studies = sorted((ROOT / "config" / "studies").glob("*.yaml"))
    assert studies
    for path in studies:
        assert read_study(path, MODELS).question.endswith("?")


def test_kernels_name_their_networks_and_are_cells_of_their_own(tmp_path: Path) -> None:
    head = "question: Does it work?\nmeasure_on: [local]\n"
    study = read_text(tmp_path, head + "kernels: [{networks: [llama-5m, llama-25m], tokens: [64], repeats: 2}]\n")
    ((entry),) = study.cells
    assert isinstance(entry.cell, KernelsCell)
    assert [network.name for network in entry.cell.networks] == ["llama-5m", "llama-25m"]
    assert (entry.repeats, entry.cell.tokens) == (2, (64,))
    assert entry.cell_id.startswith("kernels-1-")
    with pytest.raises(ValueError, match=r"kernels 1: networks: names of files in .* are needed, found 'llama-5m'"):
        read_text(tmp_path, head + "kernels: [{networks: llama-5m}]\n")
