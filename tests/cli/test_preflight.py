import json

import pytest

from falloff.cli import preflight as command
from falloff.cli.main import main
from falloff.preflight import Preflight, Rate


def found(slow: float = 1.0, failure: str | None = None) -> Preflight:
    rates = tuple(
        Rate(measure="memory copy", unit="B/s", devices=(n,), repeats=(4e12 * (slow if n == 3 else 1.0),) * 3)
        for n in range(8)
    )
    return Preflight(device="cuda", rates=rates, loads=(), failure=failure)


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, result: Preflight, *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(command, "run_preflight", lambda _: result)
    code = main(["preflight", *arguments])
    return code, capsys.readouterr().out


def test_gpus_that_agree_end_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(capsys, monkeypatch, found())
    assert code == 0
    assert out.endswith("No GPU and no pair stands out.\n")


def test_a_slow_gpu_ends_with_1_and_its_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = run(capsys, monkeypatch, found(slow=0.8))
    assert code == 1
    assert out.endswith("FAULT: GPU 3 is 20.0% slower than the median at memory copy.\n")


def test_a_failure_ends_with_1_beside_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = run(capsys, monkeypatch, found(failure="ValueError: wrong sums"), "--json")
    printed = json.loads(out)
    assert code == 1
    assert printed["faults"] == ["not everything could be measured: ValueError: wrong sums"]
    assert printed["rates"][0] == {
        "measure": "memory copy",
        "unit": "B/s",
        "devices": [0],
        "repeats": [4e12, 4e12, 4e12],
    }


def test_a_device_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["preflight", "--device", "tpu"])
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
