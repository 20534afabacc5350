"""What a crash leaves in the folder of a store that nothing refers to: spilled runs, half-done rewrites, parts of a
compaction that was not committed and cannot be gone on with."""

from __future__ import annotations

from collections.abc import Collection

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, compaction_progress, inputs
from lamina.engines.store.catalog import Catalog
from lamina.log.files import Files
from lamina.log.naming import sort_out


def strays(files: Files, folder: str, catalog: Catalog, in_use: Collection[str]) -> list[str]:
    """Names of files that can go. ``in_use``: working files of who asks. Raises: DiskError."""
    names = files.list(folder)
    known = {part.name for part in catalog.parts} | cleaning.in_progress(files, folder)
    for name in names:
        generation = catalogs.former_generation(name)
        if generation is not None:
            former = cleaning.usable_former(files, folder, generation)
            if former is None:
                return []  # it cannot be told what it named
            known |= {part.name for part in former.parts}
    gone = [name for name in names if name.startswith(inputs.RUN) and name not in in_use]
    unfinished = compaction_progress.unfinished(files, folder)
    if catalogs.PROGRESS in names and (unfinished is None or unfinished.generation <= catalog.generation):
        gone.append(catalogs.PROGRESS)  # it was committed, or is none
    gone += [name for name in names if catalogs.part_generation(name) is not None and name not in known]
    return sorted({*gone, *sort_out(names).leftovers})
