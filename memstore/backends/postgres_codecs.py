"""How values cross the wire to Postgres: as bytes, in arrays where there are many, not through text."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector, Vector
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo
from psycopg.types.array import ListBinaryDumper

from memstore.indexes.pgvector import VectorColumn, from_binary

_HEADER = 20
"""Bytes before the elements of an array of one dimension."""


class _JsonText(Loader):
    """JSON as the text it is: memstore decodes it itself, so that every number stays as it was written."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _Numbers(Loader):
    """An array of numbers, none of them NULL, as NumPy's."""

    format = Format.BINARY
    number = ">i8"

    def load(self, data: Buffer) -> Any:
        numbers = np.frombuffer(data, [("size", ">i4"), ("number", self.number)], offset=min(_HEADER, len(data)))
        return numbers["number"].astype(self.number[1:])


class _Floats(_Numbers):
    number = ">f8"


class _Terms(_Numbers):
    """The terms of one text, encoded as `analysis.to_blob` does."""

    number = ">u4"

    def load(self, data: Buffer) -> bytes:
        terms = super().load(data)
        return np.append(np.uint32(len(terms)), terms).astype("<u4").tobytes()


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Vector | HalfVector) -> Buffer:
        return obj.to_binary()


def make_adapters(column: VectorColumn | None) -> AdaptersMap:
    """Make the codecs of a database whose vectors have a column, or none yet."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(list, ListBinaryDumper)
    adapters.register_loader("json", _JsonText)
    adapters.register_loader(adapters.types["int8"].array_oid, _Numbers)
    adapters.register_loader(adapters.types["float8"].array_oid, _Floats)
    adapters.register_loader(adapters.types["int4"].array_oid, _Terms)
    if column is not None:
        TypeInfo(column.kind, column.oid, column.array_oid).register(adapters)
        kind = column.kind

        class VectorLoader(Loader):
            format = Format.BINARY

            def load(self, data: Buffer) -> bytes:
                return from_binary(kind, bytes(data))

        adapters.register_loader(column.oid, VectorLoader)
        adapters.register_dumper(Vector, _VectorDumper)  # a query; statements say what it is
        dumper = type("VectorDumper", (_VectorDumper,), {"oid": column.oid})
        adapters.register_dumper(Vector if kind == "vector" else HalfVector, dumper)
    return adapters
