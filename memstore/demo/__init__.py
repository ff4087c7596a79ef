"""A demonstration: an agent that remembers."""
