"""What every backend and every index must do: classes that a backend's tests subclass.

A class of stores asks for one fixture, `open_store`; it comes in a sync and an async form, and each test runs on both.
"""
