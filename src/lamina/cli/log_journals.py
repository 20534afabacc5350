"""``lamina log verify`` and ``lamina doctor --deep`` on folders of journal queues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lamina.cli.doctor_finding import NOTE, PROBLEM, WARNING, Finding
from lamina.cli.render import counted, out
from lamina.engines.queues.journal import verify
from lamina.engines.queues.journal.paths import ASIDE
from lamina.engines.queues.journal.verify import Bad, Verified
from lamina.engines.queues.opening import JOURNALS
from lamina.errors import from_os
from lamina.log.files.real import RealFiles
from lamina.units import show_bytes

_FILES = RealFiles()
_BRING_BACK = "bring the queue's folder back from a backup, or start: what is whole is delivered, the recipient is told"


@dataclass(slots=False)
class Journals:
    """The folders of queues in a folder, or below it."""

    folder: str
    is_all: bool
    """The folder is that of one queue: there are no other logs in it."""
    folders: list[str] = field(default_factory=list)

    @cached_property
    def verified(self) -> dict[str, Verified]:
        """By folder, as seen from above. Raises: DiskError."""
        found = {}
        for path in self.folders:
            try:
                found[os.path.relpath(path, self.folder)] = verify.verify(_FILES, path)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                raise from_os(error, "read the folder", path) from error
        return found

    @property
    def is_damaged(self) -> bool:
        return any(found.damage for found in self.verified.values())

    def places(self) -> Iterator[tuple[str, Bad]]:
        """Every place that is not as it should be, and its file as seen from the folder."""
        for name, found in self.verified.items():
            for bad in found.bad:
                yield os.path.normpath(os.path.join(name, bad.file)), bad

    def as_dict(self) -> dict[str, object]:
        verified = self.verified.values()
        return {
            "queues": len(verified),
            "messages": sum(found.messages for found in verified),
            "bytes": sum(found.bytes for found in verified),
            "torn": [_shown(file, bad) for file, bad in self.places() if bad.is_torn],
            "damage": [_shown(file, bad) for file, bad in self.places() if not bad.is_torn],
        }


def _shown(file: str, bad: Bad) -> dict[str, object]:
    return {"file": file, "offset": bad.offset, "end": bad.end, "reason": bad.reason}


def journals_in(folder: str) -> Journals:
    """Of the folder of one queue, of all journals, or of the queues. Raises: DiskError."""
    try:
        names = _FILES.list(folder)
        is_one = verify.is_journal(names)
        root = os.path.join(folder, JOURNALS) if JOURNALS in names else folder
        is_root = JOURNALS in names or os.path.basename(os.path.abspath(folder)) == JOURNALS
        folders = [folder] if is_one else list(verify.folders_below(_FILES, root)) if is_root else []
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    return Journals(folder, is_one or (is_root and JOURNALS not in names), folders)


def print_journals(journals: Journals) -> None:
    """What was found, for people."""
    shown = journals.as_dict()
    text = f"{counted(len(journals.verified), 'queue')}, {shown['messages']} messages in their files"
    out.print(f"{text}, {show_bytes(sum(found.bytes for found in journals.verified.values()))}", markup=False)
    for file, bad in journals.places():
        if bad.is_torn:
            out.print(f"torn: {file}, byte {bad.offset}: {bad.reason}", style="yellow", markup=False)
        else:
            text = f"damage: {file}, byte {bad.offset} to {bad.end}: {bad.reason}"
            out.print(text, style="bold red", markup=False)
    if journals.is_damaged:
        out.print(f"damage found in journals; {_BRING_BACK}", markup=False)
    elif not any(found.torn for found in journals.verified.values()):
        out.print("no damage in journals", style="green")


def findings(data: str, *, is_written: bool) -> Iterator[Finding]:
    """What doctor says of all journals of a data folder."""
    root = os.path.join(data, "queues", JOURNALS)
    journals = Journals(data, is_all=False, folders=list(verify.folders_below(_FILES, root)))
    for file, bad in journals.places():
        text = f"{file}, byte {bad.offset}: {bad.reason}"
        if not bad.is_torn:
            yield Finding(PROBLEM, "journals", text, _BRING_BACK)
        elif not is_written:
            yield Finding(
                NOTE, "journals", text, "as a crash leaves it: the next start sees to it, and keeps the bytes"
            )


def beside(data: str) -> Iterator[Finding]:
    """Folders of queues that were set aside. Quick: the root is all that is looked at."""
    root = os.path.join(data, "queues", JOURNALS)
    try:
        aside = sorted(name for name in os.listdir(root) if name.startswith(ASIDE))
    except OSError:
        return
    if aside:
        text = f"{JOURNALS}/{aside[0]}{f' and {len(aside) - 1} more' if len(aside) > 1 else ''}: folders of queues that"
        text += " the log of the queues does not know"
        do = "bring back the right log, and the next start brings them back; remove them when nobody misses them"
        yield Finding(WARNING, "journals", text, do)
