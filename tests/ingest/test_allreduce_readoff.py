import shutil
from pathlib import Path

import pytest

from falloff.ingest.allreduce_readoff import read_allreduce_readoff
from falloff.records import CollectiveRecord

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"


@pytest.fixture(scope="module")
def readoff() -> list[CollectiveRecord]:
    return read_allreduce_readoff(EXTERNAL / "nccl-allreduce-readoff" / "nccl_allreduce_readoff.csv", HARDWARE)


def test_a_point_hidden_behind_a_curve_has_no_bandwidth(readoff: list[CollectiveRecord]) -> None:
    assert len(readoff) == 88
    hidden = [point for point in readoff if point.reported_busbw_bytes_s is None]
    assert len(hidden) == 20
    first = readoff[0]
    assert (first.nodes, first.num_ranks, first.message_bytes) == (4, 32, 16 * 2**20)
    assert first.reported_busbw_bytes_s == 114e9
    assert all("bus bandwidth likely, not stated" in (point.flags or ()) for point in readoff)


def copy_with(tmp_path: Path, last_line: str) -> Path:
    shutil.copytree(EXTERNAL / "nccl-allreduce-readoff", tmp_path, dirs_exist_ok=True)
    table = tmp_path / "nccl_allreduce_readoff.csv"
    table.write_text(table.read_text(encoding="utf-8").rstrip("\n") + "\n" + last_line + "\n", encoding="utf-8")
    return table


def test_a_point_that_is_stated_twice_is_an_error(tmp_path: Path) -> None:
    table = copy_with(tmp_path, "4,32,16MiB,214,5,")
    with pytest.raises(ValueError, match="line 90: the cell of nodes '4', message_size '16MiB' is stated twice"):
        read_allreduce_readoff(table, HARDWARE)


def test_a_size_has_one_way_to_be_written(tmp_path: Path) -> None:
    table = copy_with(tmp_path, "4,32,1024MiB,214,5,")
    with pytest.raises(ValueError, match="line 90: message_size: a size such as 16MiB is needed, found '1024MiB'"):
        read_allreduce_readoff(table, HARDWARE)


def test_a_plot_has_one_source(tmp_path: Path) -> None:
    table = copy_with(tmp_path, "5,40,16MiB,214,5,")
    sources = tmp_path / "sources.yaml"
    sources.write_text(sources.read_text(encoding="utf-8") + "other: {name: a, address: b, licence: c, counts: d}\n")
    with pytest.raises(ValueError, match=r"sources\.yaml: one source is needed for this table, found .*, other"):
        read_allreduce_readoff(table, HARDWARE)
