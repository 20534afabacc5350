"""From staged parts to files that readers see.

    1 the manifest names the parts, where they are and where they belong     <- commit point
    2 each is renamed to its place, and the folders are synced
    3 the manifest is saved without them, and the staging folder removed

A crash before 1 leaves the export as it was; after it, ``finish`` does the rest, at once or in the next run. Between 1
and 3 a plain reader may find some files of a batch and not the others yet: rows that come late, none twice. A view that
is replaced as a whole is put in place as one folder: for an instant there is none, and a reader gets an error, never a
mixture.
"""

from __future__ import annotations

from dataclasses import replace

from lamina.errors import from_os
from lamina.log.files import Files, join
from lamina.pipeline import staging
from lamina.pipeline.exporting import manifest as manifests
from lamina.pipeline.exporting.manifest import Manifest
from lamina.pipeline.exporting.target import list_folder


def job_name(view: str) -> str:
    """Begins the names of staging folders."""
    return f"export.{view}"


def commit(files: Files, to: str, manifest: Manifest) -> Manifest:
    """Durability: when it returns, the rows are synced in their places.

    Raises: DiskFull, DiskError. If the manifest was saved, it counts, and the next run finishes it.
    """
    manifests.save(files, to, manifest)
    return finish(files, to, manifest)


def finish(files: Files, to: str, manifest: Manifest) -> Manifest:
    """Put in place what is not there yet. Hold the lock. Raises: DiskFull, DiskError."""
    try:
        if manifest.swap:
            _swap(files, to, manifest)
        folders = list(dict.fromkeys(join(to, final.rpartition("/")[0]) for _, final in manifest.moving))
        for folder in folders:
            files.make_folder(folder)
        for staged, final in manifest.moving:
            try:
                files.rename(join(to, staged), join(to, final))
            except FileNotFoundError:
                continue  # it was in its place already
        for folder in folders:
            files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "put the export in place in", join(to, manifest.view)) from error
    if manifest.moving or manifest.swap:
        manifest = replace(manifest, moving=(), swap="")
        manifests.save(files, to, manifest)
    staging.sweep(files, to, job_name(manifest.view))
    return manifest


def _swap(files: Files, to: str, manifest: Manifest) -> None:
    staged, final = join(to, manifest.swap), join(to, manifest.view)
    above, _, name = staged.rpartition("/")
    if name not in list_folder(files, above):
        return  # done
    if manifest.view in list_folder(files, to):
        files.rename_folder(final, f"{above}/before")
    files.rename_folder(staged, final)
