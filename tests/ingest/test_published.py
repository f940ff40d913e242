import re
from pathlib import Path

from falloff.ingest.published_collectives import read_collectives
from falloff.ingest.training_cells import read_training_cells
from falloff.spec.reading import read_yaml

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"
FOLDERS = ("published-training", "published-collectives", "torchtitan-tables", "nccl-allreduce-readoff")


def test_each_record_carries_the_licence_of_its_source() -> None:
    cells = read_training_cells(EXTERNAL / "published-training" / "training_cells.csv", HARDWARE)
    collectives = read_collectives(EXTERNAL / "published-collectives" / "collectives.csv", HARDWARE)
    for record in (*cells, *collectives):
        assert record.licence
        assert (record.licence == "CC BY-SA 4.0") == (record.source == "ml-engineering")


def test_the_words_about_sources_and_the_sources_of_the_reader_agree() -> None:
    for folder in FOLDERS:
        words = (EXTERNAL / folder / "SOURCE.md").read_text(encoding="utf-8")
        entries = dict(re.findall(r"^## (.+?)\n\n(.+?)(?=\n\n|\Z)", words, flags=re.MULTILINE | re.DOTALL))
        sources = read_yaml(EXTERNAL / folder / "sources.yaml")
        assert list(entries) == list(sources)
        for key, source in sources.items():
            assert f"- licence: {source['licence']}\n" in entries[key]
            assert f"- address: {source['address']}\n" in entries[key]
            assert ("unverified" in entries[key]) == ("unverified" in source)
