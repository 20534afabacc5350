"""The journals of queues: each file reads back whole, and no message is in it twice.

Journals keep the present only, so there is no history to prove. What is there when they are read is what counts.
"""

from __future__ import annotations

from lamina.engines.queues import ids
from lamina.engines.queues.journal import records as journal_records
from lamina.engines.queues.journal.home import no_path
from lamina.engines.queues.opening import JOURNALS
from lamina.errors import Corruption, DiskError, WrongFormat
from lamina.log.files import join
from lamina.pipeline.auditing.findings import FRAMES, MEANING, QUEUE_ONCE, QUEUE_STORY, Findings
from lamina.pipeline.auditing.holding import Held
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.reading import read_piece
from lamina.pipeline.views import journals


def has_any(held: Held) -> bool:
    return bool(held.disk.list(join(held.folder, JOURNALS)))


def audit(findings: Findings, held: Held, known: set[bytes]) -> None:
    """``known``: queues that the store has. Raises: DiskError."""
    strange = 0
    for folder in journals.find(held.disk, join(held.folder, JOURNALS)):
        id = journals.id_of(folder) or b""
        strange += id not in known
        try:
            with no_path(id, "read its messages"):
                _audit_one(findings, held, folder)
        except (Corruption, WrongFormat) as error:
            findings.violated(FRAMES, f"{error.file} of queue {ids.handle(id)}", error.offset, None, error.reason)
    if strange:
        # A queue that was deleted, or made since: folders are not removed in the same moment.
        findings.note(QUEUE_STORY, f"{strange} folders of journals are of queues that the store does not have")


def _audit_one(findings: Findings, held: Held, folder: str) -> None:
    seen: set[bytes] = set()
    for piece in journals.pieces(held.disk, folder):
        handle = journals.handle_of(folder)
        for file, position, time_ns, payload in _records(findings, held, piece, handle or ""):
            message = journal_records.decode(payload)
            if message is None:
                findings.violated(MEANING, file, position, time_ns, "no message of a journal")
            elif message.id in seen:
                findings.violated(QUEUE_ONCE, file, position, time_ns, f"a message is twice in queue {handle}")
            else:
                seen.add(message.id)
    for name in (MEANING, QUEUE_ONCE):
        findings.looked(name, len(seen))


def _records(findings: Findings, held: Held, piece: Piece, handle: str) -> list[tuple[str, int, int, bytes]]:
    name = f"{piece.file.name} of queue {handle}"
    found = []

    def damage(file: str, offset: int, reason: str) -> None:
        findings.violated(FRAMES, name, offset, None, reason)

    try:
        for records in read_piece(held.disk, piece, Times(), damage):
            for number, time_ns in enumerate(records.times):
                found.append((name, records.position(number), time_ns, records.payload(number)))
    except DiskError as error:
        findings.violated(FRAMES, name, 0, None, error.message)
    findings.looked(FRAMES, len(found))
    return found
