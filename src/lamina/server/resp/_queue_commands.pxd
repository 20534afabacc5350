# Types of queue_commands.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.queues cimport _deliveries as delivering
from lamina.engines.queues cimport _engine as engines
from lamina.engines.queues cimport _message as kinds
from lamina.server.resp cimport _session as sessions

cpdef delivering.Deliveries queues_of(sessions.Session session)

@cython.locals(body=bytes, flags=bytes)
cpdef bytes shown(kinds.Message message, int version)

@cython.locals(queues=delivering.Deliveries, engine=engines.QueueEngine, queue=kinds.Queue, position="long long")
cpdef send(sessions.Session session, list args)

cpdef _has_come(sessions.Session session, delivering.Deliveries queues, kinds.Queue queue)

@cython.locals(queues=delivering.Deliveries, queue=kinds.Queue, message=kinds.Message, position="long long")
cpdef acknowledge(sessions.Session session, list args)
