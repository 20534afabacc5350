"""What the jobs engine has to do, said in the plainest way: one dict of jobs, searched and sorted whenever asked.

Methods have the names and arguments of ``JobEngine`` and refuse with the name of its error. Who calls them sets ``now``
and calls ``tick`` before. A stamp is the time of a record: the clock's, but always later than the stamp before.
"""

from __future__ import annotations

from typing import Any

MS = 1_000_000
NEVER = (1 << 63) - 1
NEW, COMPLETED, FAILED, PENDING, LEASED = range(5)
WAITING, OPEN, DONE = ("ready", "scheduled"), ("ready", "scheduled", "leased"), ("completed", "failed")


class Refused(Exception):
    """Its text is the name of the engine's error."""


class Model:
    def __init__(self) -> None:
        self.jobs: dict[bytes, dict[str, Any]] = {}
        self.paused: set[str] = set()
        self.waiting: list[tuple[int, list[str], int]] = []  # worker, names, most; first come, first served
        self.got: dict[int, list[bytes]] = {}
        self.listening: list[tuple[int, bytes]] = []
        self.told: dict[int, tuple[int, bytes]] = {}
        self.now = self.last = self.evicted = 0
        self.ahead = 0  # of the world's time, in which jobs are scheduled

    def listed(self, name, place):
        """Priority, then scheduled time (none is first), then age, then id."""
        found = [job for job in self.jobs.values() if job["name"] == name and job["place"] == place]
        return sorted(found, key=lambda job: (-job["priority"], job["time"] or 0, job["created"], job["id"]))

    def find(self, id, places=(*OPEN, *DONE), otherwise=""):
        if id not in self.jobs:
            raise Refused("JobNotFound")
        if self.jobs[id]["place"] not in places:
            raise Refused(otherwise)
        return self.jobs[id]

    def key_is_taken(self, name, unique):
        alive = [job for job in self.jobs.values() if job["name"] == name and job["place"] in OPEN]
        return unique and any(job["unique"] == unique for job in alive)

    def stamp(self, job=None):
        if job and not job["ttl"]:  # in the foreground: nothing of it is written
            return self.now
        self.last = max(self.now, self.last + 1)
        return self.last

    def due(self, job):
        also = {"leased": job["lease_until"], "scheduled": job["ready_at"]}
        return min(job["expires"], also.get(job["place"], NEVER))

    def tick(self):
        """Do all that is due, in the order of time. Returns when more is."""
        while any(self.due(job) <= self.now for job in self.jobs.values()):
            job = min(self.jobs.values(), key=self.due)
            if job["expires"] <= self.now:
                self.evicted += job["place"] in OPEN
                self.delete(job["id"])
                continue
            if job["place"] == "scheduled":
                job["place"] = "ready"
            elif self.has_attempts_left(job):
                self.put_back(job, backed_off(job, job["attempts"]))
            else:
                self.finish(job, "failed", FAILED, b"")
            self.serve(job["name"])
        return min(map(self.due, self.jobs.values()), default=NEVER)

    def has_attempts_left(self, job):
        return not job["max_attempts"] or job["attempts"] < job["max_attempts"]

    def put_back(self, job, delay):
        job.update(place="scheduled" if delay else "ready", state=PENDING, lease_until=0)
        job["ready_at"] = self.stamp(job) + delay * MS

    def tell_workq_of_a_timeout(self, job):
        """A record goes before the one that says why the job is back."""
        if self.has_attempts_left(job):
            self.stamp(job)

    def finish(self, job, place, state, result):
        self.stamp(job)
        job.update(place=place, state=state, result=result, lease_until=0)
        self.told |= {who: (state, result) for who, id in self.listening if id == job["id"]}
        self.listening = [(who, id) for who, id in self.listening if id != job["id"]]

    def lease(self, names, most):
        """Of the first of each queue the one with the highest priority; then the one that is ready longest."""
        ids = []
        while len(ids) < most:
            firsts = [job for name in names if name not in self.paused for job in self.listed(name, "ready")[:1]]
            if not firsts:
                break
            job = min(firsts, key=lambda job: (-job["priority"], max(job["created"], job["ready_at"])))
            job.update(place="leased", state=LEASED, attempts=job["attempts"] + 1)
            job["lease_until"] = self.stamp(job) + job["ttr"] * MS
            ids.append(job["id"])
        return ids

    def serve(self, name):
        while name not in self.paused and self.listed(name, "ready") and any(name in each[1] for each in self.waiting):
            worker, names, most = next(each for each in self.waiting if name in each[1])
            self.leave(worker)
            self.got[worker] = self.lease(names, most)

    def add(self, id, name, ttr, ttl, payload, priority, max_attempts, max_fails, time, unique, backoff):
        start = self.now if time is None else time + self.ahead
        if start + ttl * MS <= self.now and time is not None:
            raise Refused("BadJob")
        if id in self.jobs or self.key_is_taken(name, unique):
            raise Refused("DuplicateJob")
        job = {"id": id, "name": name, "ttr": ttr, "ttl": ttl, "payload": payload, "priority": priority}
        job |= {"max_attempts": max_attempts, "max_fails": max_fails, "unique": unique, "backoff": backoff}
        job |= {"state": NEW, "attempts": 0, "fails": 0, "result": None, "lease_until": 0}
        job |= {"created": self.now, "time": time, "ready_at": 0 if time is None else start}
        job["expires"] = start + ttl * MS if ttl else NEVER
        job["place"] = "scheduled" if job["ready_at"] > self.stamp(job) else "ready"
        self.jobs[id] = job
        self.serve(name)

    def run(self, id, name, ttr, payload, priority):
        self.add(id, name, ttr, 0, payload, priority, 0, 0, None, "", 0)

    def expect_job(self, worker, names, most):
        self.waiting.append((worker, names, most))
        for name in names:
            self.serve(name)

    def leave(self, worker):
        before, self.waiting = self.waiting, [each for each in self.waiting if each[0] != worker]
        return before != self.waiting

    def complete(self, id, result):
        self.finish(self.find(id, OPEN, "DuplicateResult"), "completed", COMPLETED, result)

    def fail(self, id, result, *, for_good):
        job = self.find(id, OPEN, "DuplicateResult")
        if job["fails"] + 1 < job["max_fails"] and self.has_attempts_left(job) and not for_good:
            self.tell_workq_of_a_timeout(job)
            job.update(fails=job["fails"] + 1, result=result)
            self.put_back(job, backed_off(job, job["fails"]))
            self.serve(job["name"])
        else:
            job["fails"] += job["fails"] > 0  # counted from the first retry on
            self.finish(job, "failed", FAILED, result)

    def delete(self, id):
        self.stamp(self.find(id))
        del self.jobs[id]

    def touch(self, id, ttr):
        job = self.find(id, ["leased"], "NotLeased")
        job["lease_until"] = self.stamp(job) + ttr * MS

    def release(self, id, delay):
        job = self.find(id, ["leased"], "NotLeased")
        self.tell_workq_of_a_timeout(job)
        job["attempts"] -= 1
        self.put_back(job, delay)
        self.serve(job["name"])

    def redrive(self, id):
        job = self.find(id, ["failed"], "BadJob")
        if self.key_is_taken(job["name"], job["unique"]):
            raise Refused("DuplicateJob")
        job.update(attempts=0, fails=0, result=None)
        self.put_back(job, 0)
        self.serve(job["name"])

    def redrive_queue(self, name, limit):
        done = 0
        for job in self.listed(name, "failed"):
            if done < limit and not self.key_is_taken(name, job["unique"]):
                self.redrive(job["id"])
                done += 1
        return done

    def pause(self, name, *, pauses):
        self.stamp()
        self.paused = self.paused | {name} if pauses else self.paused - {name}
        self.serve(name)

    def expect_result(self, who, id):
        if self.find(id)["place"] in OPEN:
            self.listening.append((who, id))


def backed_off(job, times):
    return min(job["backoff"] * 2 ** max(times - 1, 0), 86_400_000)
