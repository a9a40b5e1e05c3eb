"""What people read of padded graphs: places and sizes by names that the user's program has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

_PLACE = re.compile(r"(.*):(\d+)")
_LOCAL = re.compile(r"L\['(\w+)'\]")
_ITEM = re.compile(r"\['(\w+)'\]")
_SYMBOL = re.compile(r"\bs\d+\b")


MAX_NAME = 128  # bytes, of what the daemon takes for a name


def family(source: str, dim: int) -> str:
    """The name of a place, by which the daemon knows its sizes. A very long one ends in a digest of itself."""
    name = f"{source}:{dim}"
    data = name.encode()
    if len(data) <= MAX_NAME:
        return name
    return f"{data[:100].decode(errors='ignore')}~{hashlib.sha256(data).hexdigest()[:16]}"


def bounded(text: str) -> str:
    """A text for people, as much of it as the daemon takes."""
    return text.encode()[:MAX_NAME].decode(errors="ignore")


def tensor(source: str) -> str:
    """The tensor that Dynamo calls ``L['kwargs']['ids']``, as a user would: ``ids``."""
    found = _LOCAL.match(source)
    if found is None:
        return source
    rest = source[found.end() :]
    if found[1] == "kwargs" and (item := _ITEM.match(rest)):
        return item[1] + rest[item.end() :]
    return found[1] + rest


def place(name: str) -> str:
    """``L['x']:1`` as ``dimension 1 of x``."""
    found = _PLACE.fullmatch(name)
    return name if found is None else f"dimension {found[2]} of {tensor(found[1])}"


def places(names: Iterable[str]) -> str:
    """Several, by their tensors: ``dimensions 0 and 1 of ids``."""
    dims: dict[str, list[str]] = {}
    for name in names:
        found = _PLACE.fullmatch(name)
        dims.setdefault(tensor(found[1]) if found else name, []).extend([found[2]] if found else [])
    texts = []
    for source, numbers in dims.items():
        if not numbers:
            texts.append(source)
        elif len(numbers) == 1:
            texts.append(f"dimension {numbers[0]} of {source}")
        else:
            texts.append(f"dimensions {', '.join(numbers[:-1])} and {numbers[-1]} of {source}")
    return "; ".join(texts) or "none"


def legend(text: str, families: Mapping[str, Sequence[str]]) -> str:
    """What the symbols in a text stand for, behind it."""
    named = [name for name in dict.fromkeys(_SYMBOL.findall(text)) if families.get(name)]
    return f"{text} [{'; '.join(f'{name}: {place(families[name][0])}' for name in named)}]" if named else text
