"""Graphs on a saver on Postgres."""

from __future__ import annotations

from tests.conformance.saver_congruence import CongruenceConformance
from tests.conformance.saver_deltas import DeltasConformance
from tests.conformance.saver_graphs import GraphsConformance
from tests.conformance.saver_pruning import PruningConformance


class TestGraphs(GraphsConformance):
    """What graphs do with their threads."""


class TestDeltas(DeltasConformance):
    """Delta channels."""


class TestPruning(PruningConformance):
    """Pruning, sweeping and deleting."""


class TestCongruence(CongruenceConformance):
    """The same random calls on LangGraph's saver in memory."""
