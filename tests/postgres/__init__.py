"""The conformance classes on Postgres, and what is Postgres's alone."""
