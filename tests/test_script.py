import pytest

from falloff import script


def ends_with(error: Exception) -> str:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        script.run(main)
    return str(ended.value.code)


def test_a_users_mistake_ends_a_script_with_its_sentence() -> None:
    assert ends_with(ValueError("x.yaml: seq is 0")) == "error: x.yaml: seq is 0"


def test_a_file_that_cannot_be_written_is_named() -> None:
    assert (
        ends_with(PermissionError(13, "Permission denied", "out/t.parquet"))
        == "error: out/t.parquet: Permission denied"
    )
    assert ends_with(OSError(28, "No space left on device")) == "error: No space left on device"


def test_a_bug_stays_a_traceback() -> None:
    def main() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        script.run(main)
