"""What an audit proves, one file for each kind of log.

    findings.py    what was looked at, and what is wrong with it       walking.py   frames, times and marks of any log
    holding.py     the files of a log as they are at one moment         jobs.py topics.py groups.py queues.py store.py
    digests.py     rows of a table in short                             exports.py  the log against an exported table

Nothing here is guessed: what cleaning, retention, dumps or repairs have taken away leaves a trace (holding.py), and
only where there is one is a missing beginning no violation.
"""
