"""Backups of a data folder: made beside a running server, each generation sharing with the others what did not change.

    <backup>/contents/<sha256>          bytes of files, under their digest
    <backup>/generations/<time>.json    one manifest for each generation: which contents are which files
    <backup>/lock                       one backup or pruning at a time

collecting.py   the files of a data folder, as of one moment      store.py journals.py   of the store; of journals
contents.py     bytes under their digest                          manifest.py            what a generation is
place.py        the folder of a backup                            making.py              a new generation
reread.py       old contents, read again and healed               opening.py             does what is restored start?
disk.py         a generation as a disk that can be read           checking.py pruning.py every byte; fewer generations
restoring.py    a data folder from a backup, or from another one  reaching.py            how far back that can be
"""
