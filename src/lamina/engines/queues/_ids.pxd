# What other compiled modules may call without going through Python.
cpdef bytes wire(bytes id)
cpdef bytes parse(bytes text)
