"""Reading a folder that the real limestone library wrote, to take its data over. It is never changed.

    limestone-manifest.json        version of the format, and the lock            manifest.py
    epoch, epoch.<ms>.<epoch>      up to which epoch data is durable              epochs.py
    compaction_catalog             what was compacted into what                   catalog.py
    pwal_NNNN, pwal_NNNN.<ms>.<n>  snippets: the bytes of one session each        entries.py, snippets.py, rest.py
    pwal_0000.compacted            the newest entries as of the last compaction   baseline.py

source.py gives the files, folder.py chooses which of them count, detached.py looks through those that a compaction set
aside, overlooked.py handles those that it forgot, newest.py merges. All numbers are little endian and nothing has a
checksum: lengths are held against what is left of the file before anything is allocated.
"""

from lamina.engines.store.limestone.folder import LimestoneFolder, read_folder

__all__ = ["LimestoneFolder", "read_folder"]
