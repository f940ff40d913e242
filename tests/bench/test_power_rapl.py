import pytest

from falloff.bench.power_rapl import rapl_packages, rapl_source
from tests.bench.rapl_zones import rapl_zone


def test_only_whole_packages_are_read_from_rapl(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    rapl_zone(tmp_path, "intel-rapl:0:0", "core")
    rapl_zone(tmp_path, "intel-rapl:1", "package-1")
    rapl_zone(tmp_path, "intel-rapl:2", "psys")
    packages, reason = rapl_packages(tmp_path)
    assert [package.name for package in packages] == ["package-0", "package-1"]
    assert reason is None


def test_a_rapl_counter_that_starts_again_goes_on_growing(tmp_path):
    zone = rapl_zone(tmp_path, "intel-rapl:0", "package-0", energy_uj=262_143_000_000)
    source = rapl_source(rapl_packages(tmp_path)[0])
    assert source.read()[0].energy_j == 0.0
    (zone / "energy_uj").write_text("1671150\n")  # past 262143.32885 J, its range: 0.32885 J and 1.67115 J more
    reading = source.read()[0]
    assert reading.energy_j == pytest.approx(2.0)
    assert reading.draw_w is not None
    assert reading.draw_w > 0


def test_a_rapl_counter_that_goes_away_leaves_blanks(tmp_path):
    zone = rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    source = rapl_source(rapl_packages(tmp_path)[0])
    (zone / "energy_uj").unlink()
    assert source.read()[0].energy_j is None
