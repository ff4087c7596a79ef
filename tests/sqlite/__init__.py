"""The conformance classes on SQLite, and what is SQLite's alone."""
