"""Checkpoints as they are written and read: where they stand, and what of them is decoded when.

Everything is encoded before a transaction begins and decoded after it ended. What a user put into the state passes
through the serializer alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import TASKS

from memstore.errors import DatabaseDamaged, InvalidArgument, NotEncrypted, UnstorableType
from memstore.items import Microseconds
from memstore.metadata import from_metadata
from memstore.namespaces import is_storable

COUNTERS: Final = "counters_since_delta_snapshot"
"""The key of the metadata that names the delta channels whose value lies with the ancestors."""
_DELTA_MARK: Final = "delta_writes_versioned"
"""The same for threads of LangGraph.js, which names no channels."""
_SENDS_MOVED: Final = 4
"""The format of checkpoints from which on they hold their own sends; before, these are writes of the parent."""
_UUID6: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)
_EPOCH_TICKS: Final = (datetime(1970, 1, 1, tzinfo=UTC) - _GREGORIAN) // timedelta(microseconds=1) * 10
"""1970 on the clock of a UUID, which counts tenths of a microsecond."""


class Address(NamedTuple):
    """Where a checkpoint stands."""

    thread_id: str
    namespace: str
    """LangGraph's `checkpoint_ns`: empty for the graph itself, a path for a subgraph."""
    checkpoint_id: str

    def to_config(self) -> RunnableConfig:
        """Give the config that names it."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.checkpoint_id,
            }
        }


@dataclass(frozen=True, slots=True)
class Blob:
    """The value of a channel in one version, encoded."""

    channel: str
    version: str
    type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint that is to be written."""

    address: Address
    parent_id: str | None
    checkpoint: Checkpoint
    metadata: str
    changed: Collection[str] | None
    """The channels whose values its parent's blobs may not have; None for all."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A checkpoint as it is written."""

    address: Address
    parent_id: str | None
    metadata: str
    body: Any
    """SQLite: the type and bytes of the whole. Postgres: JSON, without what stands in the blobs."""
    blobs: Sequence[Blob] = ()
    whole: bool = True
    """Whether it may be read without its parent's blobs."""


class StoredWrite(NamedTuple):
    """A pending write, encoded."""

    task_path: str
    task_id: str
    place: int
    channel: str
    type: str
    data: bytes


@dataclass(slots=True)
class Stored:
    """A checkpoint as it was read, not decoded yet."""

    address: Address
    parent_id: str | None
    metadata: Any
    body: Any
    blobs: Mapping[tuple[str, str], Blob] = field(default_factory=dict)
    """By channel and version; those of other checkpoints of the namespace too."""
    writes: list[StoredWrite] = field(default_factory=list)
    sends: list[StoredWrite] = field(default_factory=list)
    """What the parent's tasks send, which checkpoints of old formats do not hold themselves."""
    size: int = 0
    """About how many bytes there are to decode."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the ancestry of a checkpoint is told by."""

    checkpoint_id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    format: int
    versioned: frozenset[str]
    """The channels that have a version."""
    held: frozenset[str]
    """Those whose value is stored here."""

    @property
    def sends_from(self) -> str | None:
        """The parent that may hold what is sent to its tasks, as old formats have it."""
        return self.parent_id if self.format < _SENDS_MOVED else None

    @property
    def missing(self) -> frozenset[str]:
        """The delta channels whose value has to be made of the writes of its ancestors."""
        absent = self.versioned - self.held
        if self.metadata.get(_DELTA_MARK):
            return absent
        return absent.intersection(self.metadata.get(COUNTERS) or ())


@dataclass(frozen=True, slots=True)
class Page:
    """Some checkpoints, the newest first."""

    limit: int
    thread_id: str | None = None
    namespace: str | None = None
    checkpoint_id: str | None = None
    before: str | None = None
    """Checkpoints with a smaller id alone."""
    after: Address | None = None
    """The last one of the page before."""
    filter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reader:
    """Decodes what was stored.

    Args:
        serde: The serializer.
        strict: Whether what is not encrypted is refused.
    """

    serde: SerializerProtocol
    strict: bool = False

    def load(self, type: str | None, data: bytes | None) -> Any:
        """Decode a value.

        Raises:
            DatabaseDamaged: Its row has no type.
            NotEncrypted: It should be encrypted, and is not.
        """
        if type is None:
            raise DatabaseDamaged("a checkpoint, or a write of one, does not say how it is encoded")
        self.check(type)
        return self.serde.loads_typed((type, data if data is not None else b""))

    def check(self, type: str) -> None:
        """Refuse a type that is not encrypted where all has to be."""
        if self.strict and "+" not in type:
            raise NotEncrypted("it was written without a key, or put there by somebody else")

    def load_writes(self, writes: Sequence[StoredWrite]) -> list[PendingWrite]:
        """Decode the writes of a checkpoint, in the order in which they are applied."""
        ordered = sorted(writes, key=lambda write: writes_sort_key(write.task_path, write.task_id, write.place))
        return [(write.task_id, write.channel, self.load(write.type, write.data)) for write in ordered]


def encrypts(serde: SerializerProtocol) -> bool:
    """Tell whether a serializer encrypts: its types say so."""
    return isinstance(serde, EncryptedSerializer) or "+" in serde.dumps_typed(None)[0]


def to_tuple(stored: Stored, checkpoint: Checkpoint, reader: Reader) -> CheckpointTuple:
    """Make LangGraph's tuple of a checkpoint whose body was decoded."""
    parent = stored.parent_id
    if stored.sends and parent and checkpoint.get("v", 1) < _SENDS_MOVED and not checkpoint.get("pending_sends"):
        versions = checkpoint["channel_versions"]
        checkpoint["channel_values"][TASKS] = [value for _, _, value in reader.load_writes(stored.sends)]
        versions[TASKS] = max(versions.values()) if versions else to_next_version(None)
    return CheckpointTuple(
        config=stored.address.to_config(),
        checkpoint=checkpoint,
        metadata=cast(CheckpointMetadata, from_metadata(stored.metadata)),
        parent_config=stored.address._replace(checkpoint_id=parent).to_config() if parent else None,
        pending_writes=reader.load_writes(stored.writes),
    )


# configs --------------------------------------------------------------------------------------------------------------


_is_storable = lru_cache(maxsize=1024)(is_storable)
"""The same few names come again and again."""


def to_configurable(config: Any) -> Mapping[str, Any]:
    """Give what a config says of checkpoints.

    Raises:
        InvalidArgument: It names no thread.
    """
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping) or configurable.get("thread_id") is None:
        raise InvalidArgument('a config names its thread: {"configurable": {"thread_id": ...}}')
    return configurable


def to_name(name: Any, kind: str) -> str:
    """Check the name of a thread, or of something else; what is not text becomes text.

    Raises:
        InvalidArgument: It contains NUL or a lone surrogate.
    """
    text = str(name)
    if not _is_storable(text):
        raise InvalidArgument(f"the {kind} contains NUL or a lone surrogate")
    return text


def to_names(names: Any, kind: str) -> list[str]:
    """Check several names; each counts once.

    Raises:
        InvalidArgument: They are a single text, or one of them cannot be stored.
        UnstorableType: The same for a text, which callers expect to be a `TypeError`.
    """
    if isinstance(names, str | bytes):
        raise UnstorableType(f"expected a list of {kind}s, got {type(names).__name__}")
    return list(dict.fromkeys(to_name(name, kind) for name in names))


def to_address(config: Any) -> tuple[str, str, str | None]:
    """Give the thread, the namespace, and the checkpoint where the config names one."""
    configurable = to_configurable(config)
    checkpoint_id = configurable.get("checkpoint_id")
    return (
        to_name(configurable["thread_id"], "thread_id"),
        to_name(configurable.get("checkpoint_ns") or "", "checkpoint_ns"),
        to_name(checkpoint_id, "checkpoint_id") if checkpoint_id else None,
    )


def to_page(config: Any, filter: Any, before: Any, limit: Any) -> Page:
    """Check what is to be listed; the page's own limit is the caller's, or -1 for all.

    Raises:
        InvalidArgument: The limit is no number from 0 on, or the filter no dict.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgument("limit is a whole number from 0 on, or None for all")
    if filter is not None and not isinstance(filter, Mapping):
        raise InvalidArgument(f"filter is a dict, got {type(filter).__name__}")
    before_id = (before.get("configurable") or {}).get("checkpoint_id") if isinstance(before, Mapping) else None
    page = Page(-1 if limit is None else limit, before=None if before_id is None else str(before_id))
    if filter:
        page = replace(page, filter=dict(filter))
    if not config:
        return page
    thread_id, namespace, checkpoint_id = to_address(config)
    named = "checkpoint_ns" in config["configurable"] and config["configurable"]["checkpoint_ns"] is not None
    return replace(page, thread_id=thread_id, namespace=namespace if named else None, checkpoint_id=checkpoint_id)


# versions and times ---------------------------------------------------------------------------------------------------


def to_next_version(current: Any) -> str:
    """Give the version that follows one of a channel; a random tail tells those of two branches apart."""
    number = 0 if current is None else int(current) if not isinstance(current, str) else int(current.split(".")[0])
    return f"{number + 1:032}.{random.random():016}"  # noqa: S311  no secret


def to_moment(checkpoint_id: str) -> datetime | None:
    """Give the time in the id of a checkpoint, in UTC; None where it is no UUID of version 6."""
    if not _UUID6.fullmatch(checkpoint_id):
        return None
    digits = checkpoint_id.replace("-", "")
    return _GREGORIAN + timedelta(microseconds=int(digits[:12] + digits[13:16], 16) // 10)


def to_first_id(moment: Microseconds) -> str:
    """Give what no id of a checkpoint made from a time on is less than, and every earlier one is."""
    ticks = f"{_EPOCH_TICKS + moment * 10:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}"
