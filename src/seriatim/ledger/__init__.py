"""Positions, state and output in one atomic commit. The only room that makes things visible."""
