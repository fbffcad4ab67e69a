"""One module for each contestant: a process of its own, told its task by the environment (`bench.task`).

Beside each stand the settings it was given, and why: those that its own documentation recommends for this work.
"""
