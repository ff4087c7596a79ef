"""The metadata of checkpoints: JSON, on every database the same.

NaN and infinities become null, NUL is left out, lone surrogates are replaced, and floats from 1e16 on become the
integers that they are. A filter compares it as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, get_serializable_checkpoint_metadata

from memstore.errors import DatabaseDamaged, InvalidValue, UnstorableType
from memstore.filters import json_equal
from memstore.namespaces import is_storable

_WHOLE: Final = 1e16
"""From here on every float is a whole number, and is written with an exponent."""


def to_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> str:
    """Merge a config's own metadata in, as LangGraph does, and encode it as JSON.

    Raises:
        UnstorableType: A part of it has no place in JSON.
    """
    merged = get_serializable_checkpoint_metadata(config, metadata)
    try:
        text = json.dumps(merged, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        wrong = sorted(str(key) for key, part in merged.items() if not _is_json(part))
        raise UnstorableType(f"metadata is JSON, but not the part named {', '.join(wrong)}") from error
    except (ValueError, RecursionError):
        text = ""
    if not text or "\\u0000" in text or "e+" in text or not (text.isascii() or is_storable(text)):
        try:
            text = json.dumps(_clean(merged), ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise InvalidValue("metadata contains itself, or a number of more digits than Python spells") from error
    return text


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _clean(value: Any) -> Any:
    """Replace what JSON, or a database, cannot keep."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if abs(value) >= _WHOLE else value  # what JSONB would round
    if isinstance(value, Mapping):
        return {_clean(key): _clean(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return value


def from_metadata(stored: Any) -> dict[str, Any]:
    """Decode metadata.

    Raises:
        DatabaseDamaged: It is no JSON object.
    """
    if stored is None:
        return {}
    try:
        metadata = json.loads(stored)
    except ValueError as error:
        raise DatabaseDamaged("the metadata of a checkpoint is no JSON") from error
    if not isinstance(metadata, dict):
        raise DatabaseDamaged("the metadata of a checkpoint is no JSON object")
    return metadata


def accepts(filter: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Tell whether metadata holds what a filter names.

    Values are equal as JSON, keys are as they are spelled; None matches what is null or missing.
    """
    return all(json_equal(metadata.get(key), wanted) for key, wanted in filter.items())


def _is_inexact(wanted: Any) -> bool:
    """Tell whether equal values may be spelled in several ways, or none."""
    if isinstance(wanted, float):
        return not wanted.is_integer()
    if isinstance(wanted, str):
        return not is_storable(wanted)
    if isinstance(wanted, Mapping):
        return any(_is_inexact(key) or _is_inexact(part) for key, part in wanted.items())
    return isinstance(wanted, list | tuple) and any(map(_is_inexact, wanted))


def to_narrowing(filter: Mapping[str, Any]) -> str | None:
    """Give JSON that the metadata contains wherever the filter accepts it; None where nothing can be said."""
    try:
        named = {
            key: _clean(wanted) for key, wanted in filter.items() if wanted is not None and not _is_inexact(wanted)
        }
        text = json.dumps(named, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return text if named and "\\u0000" not in text and "\\ud" not in text else None
