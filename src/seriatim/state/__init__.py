"""Session state, to and from segments, and a cache of it in the worker. Never pickle: a state file can not run code."""
