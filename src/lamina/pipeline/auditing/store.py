"""The store: its own verifier looks through all of it; here is added that times rise in every channel.

See engines/store/verifying.py for what is proved: epochs rise in each channel and epoch file, sessions are whole and
have as many entries as they say, sorted files are in order and have the checksum and the count that the catalog says,
no file is missing, and files reach what others vouch for.
"""

from __future__ import annotations

from lamina.engines.store.verifying import verify
from lamina.pipeline.auditing.findings import ORDER, STORE, Findings
from lamina.pipeline.auditing.holding import Held
from lamina.pipeline.auditing.walking import Walk


def audit(findings: Findings, held: Held) -> None:
    """Raises: DiskError."""
    report = verify(held.disk, held.folder)
    for damage in report.damage:
        reason = damage.reason if damage.is_needed else f"{damage.reason} (only reads of earlier epochs need it)"
        findings.violated(STORE, damage.file, damage.offset, None, reason)
    for torn in report.torn:
        findings.note(STORE, f"{torn.file}, byte {torn.offset}: a torn end")
    findings.looked(STORE, sum(file.entries for file in report.files))
    for files in held.streams.values():
        if files[0].name.is_part:
            continue
        # What is wrong with frames the verifier has told; of this walk only the times count.
        walked = Findings(findings.log)
        for _ in Walk(walked, files).batches():
            pass
        times = walked.check(ORDER)
        known = findings.check(ORDER)
        known.rows += times.rows
        known.count += times.count
        known.violations += times.violations
