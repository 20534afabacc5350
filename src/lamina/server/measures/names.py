"""All metrics: names, units, labels and what they mean. docs/reference/metrics.md lists them; a test keeps it so.

Names end with their unit; counters with ``_total``. No label holds the id or key of a queue, the id of a job, a key of
the store or an address. Where a label names queues of jobs, topics or groups, the busiest 50 have values of their own,
and the rest together one under ``(other)``.
"""

from __future__ import annotations

from typing import Final

from lamina.server.measures.families import Metric

_E: Final = ("engine",)
_Q: Final = ("queue",)
_T: Final = ("topic",)
_G: Final = ("topic", "group")
_D: Final = ("door",)

# -- the server --------------------------------------------------------------------------------------------------------
INFO = Metric("lamina_build_info", "gauge", "Always 1; says which version runs.", ("version",))
START_TIME = Metric("lamina_start_time_seconds", "gauge", "When this run of the server began, since 1970.")
READY = Metric("lamina_ready", "gauge", "1 if clients are served and nothing is broken, as /readyz says.")
PHASE = Metric("lamina_phase", "gauge", "1 for the phase that the server is in, 0 for the others.", ("phase",))
ENGINE_PHASE = Metric(
    "lamina_recovery_phase",
    "gauge",
    "1 for the phase that the restore of an engine is in, else 0.",
    (*_E, "phase"),
)
RESTORED = Metric("lamina_recovery_ratio", "gauge", "How much of all that has to be restored is restored, 0 to 1.")
RESTORE_SECONDS = Metric("lamina_recovery_seconds", "gauge", "How long the last restore of an engine took.", _E)
HANDLES = Metric("lamina_handles", "gauge", "File handles that the process has in use.")
HANDLES_LIMIT = Metric("lamina_handles_limit", "gauge", "File handles that the process may have.")
PROBLEMS = Metric("lamina_problems", "gauge", "Things that are broken now: a failed log, a full disk.")

# -- doors -------------------------------------------------------------------------------------------------------------
CONNECTIONS = Metric("lamina_connections", "gauge", "Connections that are open.", _D)
CONNECTIONS_LIMIT = Metric("lamina_connections_limit", "gauge", "Connections that a door takes at most.", _D)
ACCEPTED = Metric("lamina_connections_accepted_total", "counter", "Connections that were taken.", _D)
OUTPUT = Metric("lamina_output_bytes", "gauge", "Bytes of answers that clients have not taken yet.")
OUTPUT_LIMIT = Metric("lamina_output_limit_bytes", "gauge", "Bytes of such answers that are kept at most.")
REFUSALS = Metric("lamina_refusals_total", "counter", "What clients were refused, by reason.", (*_D, "reason"))

# -- logs --------------------------------------------------------------------------------------------------------------
APPENDS = Metric("lamina_log_appends_total", "counter", "Records that were written to logs.", _E)
APPENDED_BYTES = Metric("lamina_log_appended_bytes_total", "counter", "Bytes that were written to logs.", _E)
WRITE_SECONDS = Metric("lamina_log_write_seconds", "histogram", "How long a write of gathered records took.", _E)
SYNC_SECONDS = Metric("lamina_log_sync_seconds", "histogram", "How long a sync took.", _E)
UNSYNCED = Metric("lamina_log_unsynced_seconds", "gauge", "Age of the oldest bytes that are not synced; 0: none.", _E)
LOG_FAILED = Metric("lamina_log_failed", "gauge", "1 if a log of the engine has failed and refuses writes.", _E)
LOG_REFUSED = Metric("lamina_log_refused_total", "counter", "Times the disk refused records and they were undone.", _E)

# -- disks -------------------------------------------------------------------------------------------------------------
SEGMENTS = Metric("lamina_segments", "gauge", "Files of logs, by state.", (*_E, "state"))
SEGMENT_BYTES = Metric("lamina_segments_bytes", "gauge", "Bytes of the files of logs, by state.", (*_E, "state"))
USED = Metric("lamina_disk_used_bytes", "gauge", "Bytes of all files of an engine.", _E)
LIVE = Metric("lamina_live_bytes", "gauge", "Bytes in logs that are still needed, estimated.", _E)
DEAD = Metric(
    "lamina_dead_bytes",
    "gauge",
    "Bytes in logs that nothing alive needs, history included, estimated.",
    _E,
)
PINNED = Metric("lamina_pinned_bytes", "gauge", "Bytes of sealed segments that a consumer has yet to read.", _E)
HISTORY = Metric("lamina_history_bytes", "gauge", "Bytes that stay only so that the recent past can be read.", _E)
HISTORY_LIMIT = Metric("lamina_history_limit_bytes", "gauge", "Bytes that all engines together may keep for it now.")
DISK_FREE = Metric("lamina_disk_free_bytes", "gauge", "Bytes that are free on the disk of the data folder.")
DISK_SIZE = Metric("lamina_disk_size_bytes", "gauge", "Bytes of the disk of the data folder.")
LOW_WATER = Metric("lamina_disk_low_water_bytes", "gauge", "With less than that free, nothing new is taken.")
RESERVE = Metric("lamina_disk_reserve_bytes", "gauge", "Room kept for a full disk; 0 while it is given away.")
SHORT = Metric("lamina_disk_is_full", "gauge", "1: there is less free than the low-water mark, nothing new is taken.")
CLEANED = Metric("lamina_cleaning_runs_total", "counter", "Runs that give back room, by work.", (*_E, "work"))
FREED = Metric("lamina_cleaning_freed_bytes_total", "counter", "Bytes that those runs gave back.", (*_E, "work"))

# -- jobs --------------------------------------------------------------------------------------------------------------
JOBS = Metric("lamina_jobs", "gauge", "Jobs, by queue and state; failed ones are the dead letters.", (*_Q, "state"))
JOBS_OLDEST = Metric("lamina_jobs_oldest_ready_seconds", "gauge", "How long the oldest ready job has been so.", _Q)
JOBS_WORKERS = Metric("lamina_jobs_waiting_workers", "gauge", "Workers that wait for a job.")
JOBS_ADDED = Metric("lamina_jobs_added_total", "counter", "Jobs that were added.", _Q)
JOBS_LEASED = Metric("lamina_jobs_leased_total", "counter", "Jobs that were handed to a worker.", _Q)
JOBS_REDELIVERED = Metric("lamina_jobs_redelivered_total", "counter", "Of those, jobs that had been handed out.", _Q)
JOBS_COMPLETED = Metric("lamina_jobs_completed_total", "counter", "Jobs that were completed.", _Q)
JOBS_FAILED = Metric("lamina_jobs_failed_total", "counter", "Attempts that a worker called failed.", _Q)
JOBS_TIMED_OUT = Metric("lamina_jobs_timed_out_total", "counter", "Leases whose time to run had passed.", _Q)
JOBS_DEAD = Metric("lamina_jobs_dead_total", "counter", "Jobs that failed for good: dead letters.", _Q)
JOBS_WAITED = Metric("lamina_jobs_waited_seconds_total", "counter", "Time that leased jobs had been ready.", _Q)
JOBS_WAIT = Metric("lamina_jobs_queue_seconds", "histogram", "How long jobs were ready before they were leased.")
JOBS_EXPIRED = Metric("lamina_jobs_expired_total", "counter", "Jobs whose life was over before they were processed.")

# -- topics ------------------------------------------------------------------------------------------------------------
TOPICS = Metric("lamina_topics", "gauge", "Topics that there are.")
TOPICS_OPEN = Metric("lamina_topics_open", "gauge", "Topics that are open; others are opened when they are used.")
TOPICS_HANDLES = Metric("lamina_topics_handles", "gauge", "File handles that open topics have.")
TOPICS_HANDLES_LIMIT = Metric("lamina_topics_handles_limit", "gauge", "File handles that open topics may have, about.")
TOPICS_CLOSED = Metric("lamina_topics_closed_total", "counter", "Idle topics that were closed to keep within that.")
TOPICS_UNKNOWN = Metric("lamina_topics_unknown", "gauge", "Topics whose groups were not looked at since the start.")
TOPIC_ENTRIES = Metric("lamina_topic_entries", "gauge", "Entries of an open topic.", _T)
TOPIC_ADDED = Metric("lamina_topic_added_total", "counter", "Entries that were added.", _T)
TOPIC_READ = Metric("lamina_topic_read_total", "counter", "Entries that were given out, by whatever read them.", _T)
TOPIC_DELIVERED = Metric("lamina_topic_delivered_total", "counter", "Entries given to groups, first time.", _T)
TOPIC_REDELIVERED = Metric("lamina_topic_redelivered_total", "counter", "Entries given to groups once more.", _T)
GROUP_LAG = Metric("lamina_group_lag_entries", "gauge", "Entries that a group has yet to read.", _G)
GROUP_LAG_SECONDS = Metric("lamina_group_lag_seconds", "gauge", "Age of the first entry it has yet to read.", _G)
GROUP_PENDING = Metric("lamina_group_pending_entries", "gauge", "Entries delivered and not acknowledged.", _G)

# -- queues ------------------------------------------------------------------------------------------------------------
QUEUES = Metric("lamina_queues", "gauge", "Queues that there are.")
QUEUES_UNKNOWN = Metric("lamina_queues_unknown", "gauge", "Queues that were not looked into since the start.")
QUEUES_MESSAGES = Metric("lamina_queues_messages", "gauge", "Messages that wait in queues.")
QUEUES_OLDEST = Metric("lamina_queues_oldest_seconds", "gauge", "Age of the oldest message at the head of a queue.")
QUEUES_SUBSCRIBERS = Metric("lamina_queues_subscribers", "gauge", "Queues that somebody has subscribed to.")
QUEUES_SENT = Metric("lamina_queues_sent_total", "counter", "Messages that were sent.")
QUEUES_SENT_BYTES = Metric("lamina_queues_sent_bytes_total", "counter", "Bytes of their bodies.")
QUEUES_DELIVERED = Metric("lamina_queues_delivered_total", "counter", "Messages given to a receiver, first time.")
QUEUES_REDELIVERED = Metric("lamina_queues_redelivered_total", "counter", "Messages given once more.")
QUEUES_ACKNOWLEDGED = Metric("lamina_queues_acknowledged_total", "counter", "Messages that were acknowledged.")
QUEUES_EXPIRED = Metric("lamina_queues_expired_total", "counter", "Messages that expired while the server ran.")
QUEUES_DAMAGE = Metric("lamina_queues_damage_total", "counter", "Places of journals found damaged since the start.")
QUEUES_LOST = Metric("lamina_queues_lost_total", "counter", "Messages of journals that were lost, as far as is known.")
QUEUES_WAIT = Metric("lamina_queues_queue_seconds", "histogram", "From sent to acknowledged, in whole seconds.")

# -- the store ---------------------------------------------------------------------------------------------------------
STORE_ENTRIES = Metric("lamina_store_written_entries_total", "counter", "Entries that were written.")
STORE_SESSIONS = Metric("lamina_store_written_sessions_total", "counter", "Sessions that were written.")
STORE_EPOCH = Metric("lamina_store_epoch", "gauge", "The last durable epoch.")

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""In this order."""
