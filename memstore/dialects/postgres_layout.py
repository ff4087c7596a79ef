"""How a checkpoint is laid out in Postgres: JSON that holds its plain values, and blobs for all others.

What JSONB does not give back exactly goes into a blob, and everything does where the serializer encrypts. A blob has
no place in the JSON, but for the snapshot of a delta channel, which is marked there: so LangGraph's own saver knows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde import types
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstore.checkpoints import Blob, Node, Reader, encrypts
from memstore.errors import InvalidValue, UnstorableType
from memstore.metadata import from_metadata
from memstore.namespaces import is_storable

_SNAPSHOT: Final = types._DeltaSnapshot  # noqa: SLF001  what delta channels store has no public name
INLINE: Final = "json"
"""The type of a value that stands in the JSON."""
_SHORT: Final = 1_024
"""Characters of a text from which on it is stored once for each version, not with every checkpoint."""
_LONGEST: Final = 10**4000
"""Integers from here on are more digits than Python reads."""


def pack(checkpoint: Checkpoint, changed: Collection[str] | None, serde: SerializerProtocol) -> tuple[str, list[Blob]]:
    """Encode a checkpoint as JSON and blobs.

    Args:
        checkpoint: The checkpoint, with the values of all its channels.
        changed: The channels whose values its parent's blobs may not have; None for all.
        serde: The serializer.

    Raises:
        InvalidValue: A name in it contains NUL or a lone surrogate.
        UnstorableType: It holds something beside its channels that is no JSON.
    """
    versions = checkpoint.get("channel_versions", {})
    secret = encrypts(serde)
    inline: dict[str, Any] = {}
    blobs = []
    for channel, value in checkpoint["channel_values"].items():
        plain = value is None or isinstance(value, str | int | float)
        if plain and not secret and _is_exact(value) and (channel not in versions or _is_short(value)):
            inline[channel] = value
            continue
        if isinstance(value, _SNAPSHOT):
            inline[channel] = True
        if channel in versions and (plain or changed is None or channel in changed):
            # a plain value may stand in the parent's JSON, where this checkpoint would not find it
            blobs.append(Blob(channel, str(versions[channel]), *serde.dumps_typed(value)))
    return _to_json({**checkpoint, "channel_values": inline}), blobs


def _is_exact(value: Any) -> bool:
    """Tell whether JSONB gives a plain value back as it is."""
    if value is None or isinstance(value, bool):
        return True
    if type(value) is str:
        return is_storable(value)
    if type(value) is int:
        return abs(value) < _LONGEST
    # a number with an exponent comes back as an integer, minus zero as zero
    return (
        type(value) is float
        and math.isfinite(value)
        and "e" not in repr(value)
        and (value != 0 or repr(value) == "0.0")
    )


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) < _SHORT


def _to_json(body: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UnstorableType("a checkpoint is JSON but for the values of its channels") from error
    if not is_storable(text) or "\\u0000" in text.replace("\\\\", ""):
        raise InvalidValue("the name of a channel or node contains NUL or a lone surrogate")
    return text


def from_body(body: str, blobs: Mapping[tuple[str, str], Blob], reader: Reader) -> Checkpoint:
    """Decode a checkpoint.

    Args:
        body: Its JSON.
        blobs: Values by channel and version, of this checkpoint and perhaps of others.
        reader: Decodes them.
    """
    checkpoint = json.loads(body)
    inline = checkpoint.get("channel_values") or {}
    values = dict(inline)
    for channel, version in (checkpoint.get("channel_versions") or {}).items():
        blob = blobs.get((channel, _to_text(version)))
        if blob is not None and blob.type != "empty":
            values[channel] = reader.load(blob.type, blob.data)
            inline.pop(channel, None)
    if inline:
        reader.check(INLINE)
    checkpoint["channel_values"] = values
    return cast(Checkpoint, checkpoint)


def _to_text(version: Any) -> str:
    """Spell a version as SQL spells what JSON holds."""
    return version if isinstance(version, str) else json.dumps(version)


def to_inline(text: str, reader: Reader) -> Any:
    """Decode a value that stands in the JSON itself."""
    reader.check(INLINE)
    return json.loads(text)


def to_node(checkpoint_id: str, parent_id: str | None, body: str, metadata: str, stored: Collection[str]) -> Node:
    """Say what the ancestry of a checkpoint is told by; `stored` are its channels that have blobs."""
    checkpoint = json.loads(body)
    held = frozenset(stored).union(checkpoint.get("channel_values") or ())
    versioned = frozenset(checkpoint.get("channel_versions") or ())
    return Node(checkpoint_id, parent_id, from_metadata(metadata), checkpoint.get("v", 1), versioned, held)


__all__ = ["from_body", "pack", "to_inline", "to_node"]
