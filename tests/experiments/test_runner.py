import queue
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from experiments import workers
from experiments.computing import Answer
from experiments.runner import Runner
from experiments.store import Store
from experiments.workers import InProcess, choose, device_share, make_executor


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
        return Answer([{"twice": 2 * unit["n"]}], {"by": "test"})


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


class Compiling:
    """Tells what was begun while something of the same program was under way for the first time."""

    def __init__(self):
        self.order, self.twice = [], []
        self._lock, self._under_way, self._known = threading.Lock(), [], set()

    def __call__(self, unit):
        with self._lock:
            self.order.append(unit["n"])
            if unit["program"] in self._under_way and unit["program"] not in self._known:
                self.twice.append(unit["n"])
            self._under_way.append(unit["program"])
        time.sleep(0.4)
        with self._lock:
            self._under_way.remove(unit["program"])
            self._known.add(unit["program"])
        return Answer([{"n": unit["n"]}], {})


def ordered(store, programs, **settings):
    compute = Compiling()
    runner = Runner(
        store, ThreadPoolExecutor(2), compute, places=2, program=lambda unit: unit["program"], **settings
    )
    runner.run([lambda n=n, p=p: runner.records({"n": n, "program": p}) for n, p in enumerate(programs)])
    assert sorted(compute.order) == list(range(len(programs)))
    return compute


def test_a_program_is_not_compiled_by_two_workers_where_something_else_waits(store):
    done = ordered(store, "aabbccdd", width=4)
    assert done.twice in ([], [6], [7])  # the last may find nothing else to do
    assert done.order[:2] == [0, 2]


def test_a_worker_does_not_idle_where_all_that_waits_needs_what_another_compiles(store):
    assert ordered(store, "aaaa", width=4).twice[:1] == [1]


def test_units_that_need_nothing_of_note_go_in_their_order(store):
    done = ordered(store, [None] * 6, width=4)
    assert all(abs(place - n) <= 2 for place, n in enumerate(done.order))


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


def test_in_process_refuses_after_it_was_stopped_and_lets_interrupts_through():
    executor = InProcess()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.submit(interrupted)
    assert executor.submit(lambda: 3).result() == 3
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(lambda: 3)


def test_a_stopped_run_does_not_wait_and_keeps_nothing_more(store):
    begun, go_on = threading.Event(), threading.Event()

    def compute(unit):
        begun.set()
        assert go_on.wait(10)
        return Answer([], {})

    runner = Runner(store, InProcess(), compute)

    def fails():
        assert begun.wait(10)
        raise RuntimeError("stop")

    started = time.monotonic()
    with pytest.raises(RuntimeError, match="stop"):
        runner.run([lambda: runner.records({"n": 1}), fails])
    assert time.monotonic() - started < 5
    go_on.set()
    time.sleep(0.05)
    assert len(store) == 0
    with pytest.raises(CancelledError):
        runner.records({"n": 2})


class Breaking(ThreadPoolExecutor):
    """Its workers die of the first calls that any of its kind gets."""

    deaths = 0

    def submit(self, fn, /, *args, **kwargs):
        if Breaking.deaths:
            Breaking.deaths -= 1
            raise BrokenExecutor("a process was killed")
        return super().submit(fn, *args, **kwargs)


def test_units_of_workers_that_died_are_begun_again_with_new_workers(store):
    Breaking.deaths = 2
    started = []

    def restart():
        started.append(Breaking(2))
        return started[-1]

    compute = Counting()
    runner = Runner(store, Breaking(2), compute, width=1, restart=restart)
    found = runner.run([lambda n=n: runner.records({"n": n}) for n in range(4)])
    assert found == [[{"twice": 2 * n}] for n in range(4)]
    assert sorted(compute.units) == [0, 1, 2, 3]
    assert len(started) == 2
    assert runner.executor is started[-1]


def test_a_unit_of_which_workers_die_ends_the_run_with_its_name(store):
    Breaking.deaths = 100
    runner = Runner(store, Breaking(1), Counting(), restart=lambda: Breaking(1))
    with pytest.raises(RuntimeError, match=r'workers died 3 times .*"n":7'):
        runner.run([lambda: runner.records({"n": 7})])
    Breaking.deaths = 1
    runner = Runner(store, Breaking(1), Counting())
    with pytest.raises(RuntimeError, match="a worker died"):
        runner.run([lambda: runner.records({"n": 7})])
    Breaking.deaths = 0


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("auto", -1, "workers: expected 0 .* got -1"),
        ("processes", 0, "workers: expected 1 or more"),
        ("in-process", 2, "workers: expected none"),
    ],
)
def test_a_number_of_workers_that_cannot_be_is_refused(name, number, said):
    with pytest.raises(ValueError, match=said):
        choose(name, number)


def test_what_auto_stands_for():
    assert choose("auto", 0) == ("in-process", 0)
    assert choose("auto", 3) == ("processes", 3)
    assert choose("in-process", None) == ("in-process", None)


def test_dask_without_a_scheduler_is_refused():
    with pytest.raises(ValueError, match="scheduler: expected the address"):
        make_executor("dask", None)


class FakeClient:
    """A scheduler's client as `DaskExecutor` sees it; the scheduler at ``dead`` does not answer."""

    nthreads_now: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, address, timeout):
        if address == "dead":
            raise OSError(f"timed out at {address}")
        self.address = address

    def nthreads(self):
        return self.nthreads_now

    def get_executor(self, **_):
        return ThreadPoolExecutor(1)

    def close(self, timeout):
        pass


@pytest.fixture
def fake_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=FakeClient))
    monkeypatch.setattr(workers, "WAIT", 0.1)
    monkeypatch.setattr(workers, "LOOK_EVERY", 0.01)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ('{"addr', "JSONDecodeError"), ('{"address": "dead"}', "timed out")],
)
def test_a_scheduler_of_a_file_is_waited_for_and_not_for_ever(fake_dask, tmp_path, content, said):
    path = tmp_path / "scheduler.json"
    if content is not None:
        path.write_text(content)
    heard = []
    with pytest.raises(OSError, match=r"scheduler\.json, got none in 0 s .*" + said + ".* left over"):
        make_executor("dask", None, str(path), heard.append)
    assert len(heard) == 1
    assert "waiting up to 0 s for the scheduler of" in heard[0]
    # and one that comes in time is taken
    executor, _ = make_executor(
        "dask",
        None,
        str(path),
        lambda line: path.write_text('{"address": "alive"}') if "up to" in line else None,
    )
    executor.shutdown()


def test_a_cluster_without_workers_is_not_waited_for_in_silence(fake_dask, monkeypatch):
    heard = queue.SimpleQueue()
    executor, width = make_executor("dask", None, "tcp://there", heard.put)
    assert heard.get(timeout=10) == "waiting for workers: the scheduler of tcp://there has none"
    monkeypatch.setattr(FakeClient, "nthreads_now", {"one": 20})
    assert heard.get(timeout=10) == "the scheduler of tcp://there has workers"
    executor.shutdown()
    assert heard.empty()
    assert width == workers.MIN_DASK_BATCHES


def test_workers_share_devices_evenly():
    assert device_share(1, 4, []) == {}
    assert device_share(2, 4, ["4", "7", "1", "0"]) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert [device_share(i, 3, ["0", "1"]) for i in range(3)] == [
        {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"},
        {"CUDA_VISIBLE_DEVICES": "1"},
        {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"},
    ]
