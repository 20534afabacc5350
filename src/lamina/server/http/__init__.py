"""The HTTP door: for people and machines that watch a server. It has a thread and a loop of its own.

    app.py       what is there: /healthz and /readyz, and whatever else is given to it
    health.py    the two answers
    door.py      sockets, the thread, stopping
    visitor.py   one connection, and the limits it is under

So it answers while the engines restore, and one that asks much never holds up those who send and receive.
It needs the extra ``server``; nothing here is imported before a door is opened.
"""
