"""A data folder as it was at a time, made anew beside the one that goes on.

asking.py     what was asked for, checked           planning.py   which files of which log; do they reach back?
copying.py    logs, cut at that time                store.py      the store at the epoch of that time
target.py     where it goes: whole, or not at all   tabling.py    a state as a table
"""
