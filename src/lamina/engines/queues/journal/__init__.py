"""The store ``journal``: messages of each queue in a folder of its own, on disk, as seed 001 wants them.

queue.log                      what was received and what is committed; its last whole line counts
messages.<id>.log              messages in the order of sending: one file that is read, one that is written, or both
queue.<time>.log               copies of earlier queue.log files

state_line.py   one line of queue.log              records.py   one message in a message file
paths.py        where the folder of a queue is     copies.py    which copies stay
state_log.py    queue.log: append, compact         opening.py   what opening a folder finds, heals and tells
unnamed.py      files that the state does not name verify.py    every byte of one folder, changing nothing
folder.py       one queue                          store.py     all of them
moving.py       from one depth of folders to another, set aside and brought back
"""
