"""From YAML or JSON to frozen classes; every mistake of a user becomes one sentence that says where."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")

Dtype = typing.Literal["float32", "bfloat16"]


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML as everybody writes it, except that a key stated twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"key {twice[0]!r} is stated twice (line {node.start_mark.line + 1})")
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path) -> Any:
    """Return what the YAML file holds; ValueError names the file where it cannot be read or parsed."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ValueError(f"{path}: not valid YAML at line {line} ({error.problem})") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ValueError(f"{path}: not valid YAML ({str(error).splitlines()[0]})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_keys(mapping: Mapping[str, Any], allowed: typing.Iterable[str], where: str) -> None:
    """Raise ValueError for the first key of `mapping` that is not allowed, naming the likeliest one meant."""
    names = list(allowed)
    for key in mapping:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{where}: unknown key {key!r}{meant}; allowed: {', '.join(names)}")


def build(cls: type[T], mapping: Any, where: str) -> T:
    """Return an instance of the frozen dataclass `cls` from a mapping.

    Raises ValueError, beginning with `where`, for unknown and missing keys, wrong types, and whatever the
    class itself refuses.
    """
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{where}: a mapping is needed, found {mapping!r}")
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls)) if f.init}
    check_keys(mapping, fields, where)
    required = [
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in mapping]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} must be stated")
    hints = typing.get_type_hints(cls)
    values = {name: _convert(hints[name], value, f"{where}: {name}") for name, value in mapping.items()}
    try:
        return cls(**values)
    except ImpossibleLayoutError as error:
        raise ImpossibleLayoutError(f"{where}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


class ImpossibleLayoutError(ValueError):
    """A cell that is well stated but cannot run: a study keeps it as refused, with this reason."""


def require_positive(instance: object, *names: str) -> None:
    """Raise ValueError for the first named number of a dataclass that is not finite and above zero."""
    for name in names:
        value = getattr(instance, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be above zero and finite, found {value}")


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the type `hint` asks for; ValueError where it is of another kind."""
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{where} is {value!r}; allowed: {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}: a list is needed, found {value!r}")
        return tuple(_convert(arguments[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: a mapping is needed, found {value!r}")
        return {str(key): _convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, typing.cast(type, hint)) else build(typing.cast(type, hint), value, where)
    return _convert_scalar(hint, value, where)


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    # bool is an int to Python; a study that says `pp: true` means something else
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    # YAML 1.1 reads 9.89e14 without a sign in the exponent as text, a trap worth mending for the user
    if hint is float and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise ValueError(f"{where}: {hint.__name__} is needed, found {value!r}")
