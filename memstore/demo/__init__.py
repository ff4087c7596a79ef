"""A demonstration, run by `python -m memstore.demo`: an agent that remembers."""
