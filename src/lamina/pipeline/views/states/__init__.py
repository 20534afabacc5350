"""States: what an engine makes of all records of a log, as tables. One file for each engine.

The engine's own state machines make them, from the files alone: so a state is what a server that was started on these
files would report.
"""
