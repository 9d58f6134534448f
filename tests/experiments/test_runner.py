import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.runner import Runner
from experiments.store import Store
from experiments.workers import InProcess, make_executor


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run.jsonl", {}) as store:
        yield store


class Counting:
    def __init__(self, seconds=0.0):
        self.units = []
        self._seconds = seconds

    def __call__(self, unit):
        self.units.append(unit["n"])
        time.sleep(self._seconds)
        if unit["n"] < 0:
            raise RuntimeError(f"unit {unit['n']}")
        return [{"twice": 2 * unit["n"]}]


def test_a_search_asks_one_unit_after_the_other(store):
    compute = Counting()
    runner = Runner(store, InProcess(), compute)

    def search(n):
        path = [n]
        while path[-1] < 20:
            path.append(runner.records({"n": path[-1]})[0]["twice"])
        return path

    assert runner.run([lambda: search(3), lambda: search(5)]) == [[3, 6, 12, 24], [5, 10, 20]]
    assert sorted(compute.units) == [3, 5, 6, 10, 12]
    assert len(store) == 5


def test_what_is_in_the_store_is_not_computed_again(store):
    compute = Counting()
    Runner(store, InProcess(), compute).records({"n": 1})
    assert Runner(store, InProcess(), compute).records({"n": 1}) == [{"twice": 2}]
    assert compute.units == [1]


def test_tasks_that_want_one_unit_share_it(store):
    compute = Counting(seconds=0.2)
    runner = Runner(store, ThreadPoolExecutor(4), compute)
    assert runner.run([lambda: runner.records({"n": 4})] * 4) == [[{"twice": 8}]] * 4
    assert compute.units == [4]


def test_an_error_stops_the_run_and_keeps_what_is_finished(store):
    compute = Counting(seconds=0.05)
    runner = Runner(store, ThreadPoolExecutor(1), compute)
    heard = []

    def endless():
        for n in range(10_000):
            runner.records({"n": n})
        return heard

    with pytest.raises(RuntimeError, match="unit -1"):
        runner.run([endless, lambda: runner.records({"n": -1})])
    assert len(compute.units) < 100
    finished = [n for n in compute.units if n >= 0]
    assert all(store.get({"n": n}) for n in finished[:-1])
    assert store.get({"n": -1}) is None


def test_the_listener_hears_of_units_that_are_kept_already(store):
    heard = []
    runner = Runner(
        store, InProcess(), Counting(), lambda unit, records: heard.append(store.get(unit) == records)
    )
    runner.run([lambda n=n: runner.records({"n": n}) for n in range(5)])
    assert heard == [True] * 5


def test_in_process_computes_one_at_a_time():
    running = threading.Semaphore(1)

    def alone():
        assert running.acquire(blocking=False)
        time.sleep(0.01)
        running.release()
        return 7

    executor = InProcess()
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(lambda: executor.submit(alone).result()) for _ in range(8)]
        assert [future.result() for future in futures] == [7] * 8


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(ValueError, match=r"workers: expected 0 .* got -1"):
        make_executor(-1)
