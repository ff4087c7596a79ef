"""The tests of memstore."""
