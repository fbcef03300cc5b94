"""The store against a model: whatever is done in whatever order, no slot is held twice and nothing ends twice."""

import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from runner.model import Reason, State
from runner.schedule.order import start_order
from runner.schedule.request import request_in, request_of
from runner.schedule.room import BoxLimits
from runner.store.connection import open_store
from runner.store.jobs import Jobs
from runner.store.notices import Notices
from runner.store.queue_order import OrderTable
from runner.store.scheduling_queries import Line
from runner.store.spec_changes import Edits, TimeLimits
from tests.jobs import a_spec, an_exit

SLOTS = [("GPU-a", 0), ("GPU-a", 1), ("GPU-b", 0)]
PRIORITIES = st.sampled_from(["normal", "high"])
SWITCHES = {"aside": st.booleans(), "trial": st.booleans()}
AT = "2026-01-01T00:00:00.000000+00:00"


class QueueMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_store(self.folder.name + "/home")
        self.store.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug here
        self.jobs, self.notices = Jobs(self.store), Notices(self.store)
        self.model: dict[int, State] = {}
        self.held: dict[int, tuple[str, int]] = {}
        self.told: dict[int, int] = {}
        self.order: list[int] = []  # all jobs, the first to start first; only what has the same priority compares
        self.kept_back: set[int] = set()
        self.untried: set[int] = set()

    def teardown(self):
        self.store.close()
        self.folder.cleanup()

    @rule(target=ids, priority=PRIORITIES, retries=st.integers(0, 1), gpus=st.integers(0, 2), **SWITCHES)
    def submit(self, priority, retries, gpus, aside, trial):
        job_id = self.jobs.add(a_spec(priority=priority, retries=retries, gpus=gpus, preemptible=aside, trial=trial))
        self.untried |= {job_id} if trial else set()
        self.model[job_id] = State.QUEUED
        self.order.append(job_id)
        return job_id

    @rule(job_id=ids)
    def hold(self, job_id):
        done = OrderTable(self.store).hold(self.jobs.get(job_id), "ann")
        assert done == (self.model[job_id] is State.QUEUED and job_id not in self.kept_back)
        if done:
            self.kept_back.add(job_id)

    @rule(job_id=ids)
    def release(self, job_id):
        assert OrderTable(self.store).release(self.jobs.get(job_id)) == (job_id in self.kept_back)
        self.kept_back.discard(job_id)

    @rule(job_id=ids)
    def put_first(self, job_id):
        if self.model[job_id] is State.QUEUED:
            assert OrderTable(self.store).to_front(self.jobs.get(job_id)) == bool(self._before(job_id))
            if self._before(job_id):
                self.order.remove(job_id)
                self.order.insert(0, job_id)

    @rule(job_id=ids)
    def move_up(self, job_id):
        if self.model[job_id] is State.QUEUED:
            before = self._before(job_id)
            assert OrderTable(self.store).move_up(self.jobs.get(job_id)) == (before[-1] if before else None)
            if before:
                here, there = self.order.index(job_id), self.order.index(before[-1])
                self.order[here], self.order[there] = self.order[there], self.order[here]

    @rule(job_id=ids)
    def move_down(self, job_id):
        if self.model[job_id] is State.QUEUED:
            behind = self._passed(job_id, [i for i in self._comparable(job_id) if self._behind(i, job_id)])
            assert OrderTable(self.store).move_down(self.jobs.get(job_id)) == (behind[0] if behind else None)
            if behind:
                here, there = self.order.index(job_id), self.order.index(behind[0])
                self.order[here], self.order[there] = self.order[there], self.order[here]

    @rule(job_id=ids)
    def put_last(self, job_id):
        if self.model[job_id] is State.QUEUED:
            last = self._comparable(job_id)[-1]
            assert OrderTable(self.store).to_back(self.jobs.get(job_id)) == (last != job_id)
            if last != job_id:
                self._put(job_id, last, 1)

    @rule(job_id=ids, other=ids, after=st.booleans())
    def put_beside(self, job_id, other, after):
        comparable = self._comparable(job_id)
        if self.model[job_id] is State.QUEUED and job_id != other and other in comparable:
            done = OrderTable(self.store).put_beside(self.jobs.get(job_id), self.jobs.get(other), after=after)
            assert done == (comparable.index(job_id) != comparable.index(other) + (1 if after else -1))
            if done:
                self._put(job_id, other, after)

    def _put(self, job_id, other, after):
        self.order.remove(job_id)
        self.order.insert(self.order.index(other) + after, job_id)

    @rule(job_id=ids, priority=PRIORITIES, retries=st.integers(0, 2), gpus=st.integers(0, 2), **SWITCHES)
    def edit(self, job_id, priority, retries, gpus, aside, trial):
        job = self.jobs.get(job_id)
        spec = a_spec("other", priority=priority, retries=retries, gpus=gpus, preemptible=aside, trial=trial)
        left = self._retries_left(job_id)
        assert Edits(self.store).put(job, spec) == (self.model[job_id] is State.QUEUED)
        if self.model[job_id] is State.QUEUED:
            assert self.jobs.get(job_id).spec == spec
            self.untried = (self.untried | {job_id}) if trial else (self.untried - {job_id})
            assert self._retries_left(job_id) == max(0, left + retries - job.spec.retries)
        else:
            assert self.jobs.get(job_id).spec == job.spec

    def _retries_left(self, job_id):
        return self.store.row("SELECT retries_left FROM jobs WHERE id = ?", (job_id,))[0]

    def _level(self, job_id):
        return request_of(self.jobs.get(job_id).spec).priority

    def _comparable(self, job_id):
        """All that wait at its level, it among them, held ones too, in order."""
        level = self._level(job_id)
        return [i for i in self.order if self.model[i] is State.QUEUED and self._level(i) == level]

    def _behind(self, job_id, other):
        return self.order.index(job_id) > self.order.index(other)

    def _before(self, job_id):
        """Those that come before it at its level, as far as they count."""
        return self._passed(job_id, [i for i in self._comparable(job_id) if self._behind(job_id, i)])

    def _passed(self, job_id, others):
        """One that may start passes those that may not, unless there are no others."""
        may_start = [i for i in others if self._may_start(i)]
        return may_start if may_start and self._may_start(job_id) else others

    def _may_start(self, job_id):
        return self.model[job_id] is State.QUEUED and job_id not in self.kept_back

    @precondition(lambda self: len(self.held) < len(SLOTS))
    @rule(job_id=ids)
    def claim(self, job_id):
        slot = next(slot for slot in SLOTS if slot not in self.held.values())
        attempt = self.jobs.claim(job_id, [slot], "boot")
        assert (attempt is not None) == self._may_start(job_id)
        if attempt:
            self.model[job_id] = State.STARTING
            self.held[job_id] = slot

    @rule(job_id=ids)
    def start(self, job_id):
        if self.model[job_id] is State.STARTING:
            self.jobs.started(self.jobs.get(job_id), AT)
            self.model[job_id] = State.RUNNING

    @rule(job_id=ids, code=st.integers(0, 2))
    def end(self, job_id, code):
        if self.model[job_id].live:
            state = State.FAILED if code else State.SUCCEEDED
            self.jobs.ended(self.jobs.get(job_id), state, Reason.EXIT, an_exit(exit_code=code))
            self._ended(job_id, state)

    @rule(job_id=ids)
    def lose(self, job_id):
        if self.model[job_id].live:
            job = self.jobs.get(job_id)
            if self.jobs.use_retry(job):
                self.jobs.back_to_queue(job, "retry", (State.LOST, Reason.HOST))
                self.model[job_id] = State.QUEUED
                del self.held[job_id]
            else:
                self.jobs.ended(job, State.LOST, Reason.HOST, None)
                self._ended(job_id, State.LOST)

    @rule(job_id=ids, fails=st.booleans())
    def finish_trial(self, job_id, fails):
        if self.model[job_id].live and job_id in self.untried:
            job = self.jobs.get(job_id)
            if fails:
                why = (State.FAILED, Reason.EXIT)
                self.jobs.back_to_queue(job, "failed", why, None, an_exit(exit_code=1), held_by="its trial")
                self.kept_back.add(job_id)
            else:
                self.jobs.passed(job, "passed", None, an_exit())
                self.untried.remove(job_id)
            self.model[job_id] = State.QUEUED
            del self.held[job_id]

    @rule(job_id=ids, limit_s=st.integers(1, 9))
    def change_limit(self, job_id, limit_s):
        """In every state: it must not turn a trial into a run."""
        TimeLimits(self.store).change(self.jobs.get(job_id), float(limit_s))

    @rule(job_id=ids)
    def give_back(self, job_id):
        if self.model[job_id] is State.STARTING:
            self.jobs.back_to_queue(self.jobs.get(job_id), "never ran")
            self.model[job_id] = State.QUEUED
            del self.held[job_id]

    @rule(job_id=ids)
    def stop(self, job_id):
        job = self.jobs.get(job_id)
        if self.jobs.cancel_waiting(job, Reason.USER, "ann"):
            assert self.model[job_id] is State.QUEUED
            self.model[job_id] = State.CANCELLED
            self.told[job_id] = 1
            self.kept_back.discard(job_id)
        else:
            assert self.model[job_id] is not State.QUEUED
            asked = self.jobs.ask_to_stop(job, Reason.USER, "ann")
            assert not (asked and not self.model[job_id].live)

    def _ended(self, job_id, state):
        self.model[job_id] = state
        self.told[job_id] = 1
        del self.held[job_id]

    @invariant()
    def states_agree(self):
        assert {job.id: job.state for job in self.jobs.find()} == self.model

    @invariant()
    def leases_agree(self):
        assert {lease.job_id: (lease.resource, lease.slot) for lease in Line(self.store).leases()} == self.held

    @invariant()
    def every_end_is_told_exactly_once(self):
        for job_id, state in self.model.items():
            told = sum(notice.kind == "ended" for notice in self.notices.about(job_id))
            assert told == (1 if state.final else 0)

    @invariant()
    def waiting_is_what_is_queued_in_order(self):
        waiting = start_order(Line(self.store).waiting(per_lane=1000), BoxLimits())
        expected = [i for i in self.order if self._may_start(i)]
        assert [found.id for found in waiting] == sorted(expected, key=lambda i: -self._level(i))

    @invariant()
    def no_place_is_held_twice_and_lanes_agree(self):
        rows = {row["id"]: row for row in self.store.rows("SELECT id, position, lane, rank FROM jobs")}
        places = [rows[job_id]["position"] for job_id, state in self.model.items() if not state.final]
        assert len(set(places)) == len(places)
        for job in self.jobs.find():
            row = rows[job.id]
            untried = job.id in self.untried if not job.state.final else request_in(row["lane"]).untried
            assert (request_in(row["lane"]), row["rank"]) == (
                request_of(job.spec, untried=untried),
                -job.spec.priority.rank,
            )

    @invariant()
    def only_what_waits_is_held(self):
        assert {job.id for job in self.jobs.find() if job.held_by} == self.kept_back


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
