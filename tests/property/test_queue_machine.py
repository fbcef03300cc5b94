"""The store against a model: whatever is done in whatever order, no slot is held twice and nothing ends twice."""

import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from runner.model import Reason, State
from runner.schedule import Limits, in_turn
from runner.store.connection import open_store
from runner.store.jobs import Jobs
from runner.store.line import Line
from runner.store.order import Order
from runner.store.outbox import Outbox
from tests.jobs import a_spec, an_exit

SLOTS = [("GPU-a", 0), ("GPU-a", 1), ("GPU-b", 0)]
AT = "2026-01-01T00:00:00.000000+00:00"


class QueueMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_store(self.folder.name + "/home")
        self.jobs, self.outbox = Jobs(self.store), Outbox(self.store)
        self.model: dict[int, State] = {}
        self.held: dict[int, tuple[str, int]] = {}
        self.told: dict[int, int] = {}
        self.order: list[int] = []  # all jobs, the first to start first; only what has the same priority compares
        self.kept_back: set[int] = set()

    def teardown(self):
        self.store.close()
        self.folder.cleanup()

    @rule(target=ids, priority=st.sampled_from(["normal", "high"]), retries=st.integers(0, 1), gpus=st.integers(0, 2))
    def submit(self, priority, retries, gpus):
        job_id = self.jobs.add(a_spec(priority=priority, retries=retries, gpus=gpus))
        self.model[job_id] = State.QUEUED
        self.order.append(job_id)
        return job_id

    @rule(job_id=ids)
    def hold(self, job_id):
        done = Order(self.store).hold(self.jobs.get(job_id), "ann")
        assert done == (self.model[job_id] is State.QUEUED and job_id not in self.kept_back)
        if done:
            self.kept_back.add(job_id)

    @rule(job_id=ids)
    def release(self, job_id):
        assert Order(self.store).release(self.jobs.get(job_id)) == (job_id in self.kept_back)
        self.kept_back.discard(job_id)

    @rule(job_id=ids)
    def put_first(self, job_id):
        if self.model[job_id] is State.QUEUED:
            assert Order(self.store).to_front(self.jobs.get(job_id)) == bool(self._before(job_id))
            if self._before(job_id):
                self.order.remove(job_id)
                self.order.insert(0, job_id)

    @rule(job_id=ids)
    def move_up(self, job_id):
        if self.model[job_id] is State.QUEUED:
            before = self._before(job_id)
            assert Order(self.store).move_up(self.jobs.get(job_id)) == (before[-1] if before else None)
            if before:
                here, there = self.order.index(job_id), self.order.index(before[-1])
                self.order[here], self.order[there] = self.order[there], self.order[here]

    def _before(self, job_id):
        """Those that may start and come before it in its priority."""
        rank = self.jobs.get(job_id).spec.priority
        ahead = self.order[: self.order.index(job_id)]
        return [i for i in ahead if self._may_start(i) and self.jobs.get(i).spec.priority is rank]

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
            told = sum(notice.kind == "ended" for notice in self.outbox.about(job_id))
            assert told == (1 if state.final else 0)

    @invariant()
    def waiting_is_what_is_queued_in_order(self):
        waiting = in_turn(Line(self.store).waiting(per_lane=1000), Limits())
        expected = [i for i in self.order if self._may_start(i)]
        assert [found.id for found in waiting] == sorted(expected, key=lambda i: -self.jobs.get(i).spec.priority.rank)

    @invariant()
    def only_what_waits_is_held(self):
        assert {job.id for job in self.jobs.find() if job.held_by} == self.kept_back


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
