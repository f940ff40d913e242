import logging
import shutil
from pathlib import Path

import pytest

from falloff.ingest.published_collectives import read_collectives
from falloff.records import CollectiveRecord

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
HARDWARE = ROOT / "config" / "hardware"


@pytest.fixture(scope="module")
def collectives() -> list[CollectiveRecord]:
    return read_collectives(EXTERNAL / "published-collectives" / "collectives.csv", HARDWARE)


def test_collectives_without_ranks_or_size_are_left_out_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        records = read_collectives(EXTERNAL / "published-collectives" / "collectives.csv", HARDWARE)
    assert len(records) == 2325 - 40
    assert "40 rows state no GPUs or no size and are left out" in caplog.text


def test_a_bandwidth_rounded_to_nothing_is_not_zero(collectives: list[CollectiveRecord]) -> None:
    assert all(record.reported_busbw_bytes_s != 0 for record in collectives)
    small = next(record for record in collectives if record.source == "aws-nccl" and record.message_bytes == 8)
    assert small.reported_busbw_bytes_s is None
    assert small.times_s == pytest.approx((164.3e-6,))


def test_the_sweeps_of_aws_stand_each_under_one_gpu(collectives: list[CollectiveRecord]) -> None:
    aws = [record for record in collectives if record.source == "aws-nccl"]
    times = {
        gpu: {(r.message_bytes, r.times_s) for r in aws if r.hardware == gpu} for gpu in ("a100-80gb-sxm", "h100-sxm")
    }
    assert {gpu: len(found) for gpu, found in times.items()} == {"a100-80gb-sxm": 29, "h100-sxm": 38}
    assert times["a100-80gb-sxm"].isdisjoint(times["h100-sxm"])


def test_collectives_are_named_alike_in_every_source(collectives: list[CollectiveRecord]) -> None:
    found = {record.collective for record in collectives}
    assert found == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}


def test_a_collective_that_is_stated_twice_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(EXTERNAL / "published-collectives", tmp_path, dirs_exist_ok=True)
    table = tmp_path / "collectives.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    (first,) = [line for line in lines if ",8,69.12," in line]
    table.write_text("\n".join([*lines, first.replace("69.12", "79.12")]), encoding="utf-8")
    words = r"line 2327: the cell of source 'aws-nccl', .*message_bytes '8', .*is stated twice, first in line \d+$"
    with pytest.raises(ValueError, match=words):
        read_collectives(table, HARDWARE)
