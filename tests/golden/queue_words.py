"""Words of scenarios and our own: the same where a scenario is known, and compared by place where we had to choose.

For some things that a store tells there is no scenario here, so the words are ours; scenarios that are not here may
have others. Those count as one and the same: that something is told, and of which file, is still compared.
"""

from __future__ import annotations

OUR_CHOICE = "a word of our choice"
KNOWN_IN_MEMORY = {
    *("ignored_file", "torn_tail", "ack_not_head", "unknown_queue", "bad_record", "missing_log"),
    *("in-progress dump", "older dump", "log already covered by the dump"),
}
KNOWN_IN_JOURNALS = {
    *("torn_state_line", "uncommitted_tail_truncated", "write_file_missing", "read_file_missing"),
    *("state_rebuilt_from_messages", "orphan_file_removed"),
}


def known(word: str, words: set[str]) -> str:
    return word if word in words else OUR_CHOICE
