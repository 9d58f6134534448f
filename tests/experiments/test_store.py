import errno
import json
import math
import os
import subprocess
import sys

import pytest

from experiments.store import Store, canonical, checksum, digest, held, write_json

HEADER = {"experiment": "none", "config": {"seeds": 3}}


def _filled(path, units=3):
    with Store(path, HEADER) as store:
        for number in range(units):
            store.put({"n": number}, [{"value": number / 7}])
    return path


def test_units_come_back_as_they_were(tmp_path):
    path = _filled(tmp_path / "run.jsonl")
    with Store(path, HEADER) as store:
        assert len(store) == 3
        assert store.get({"n": 2}) == [{"value": 2 / 7}]
        assert store.get({"n": 9}) is None
        assert store.damaged == {}


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_costs_its_unit_alone_and_the_next_line_is_whole(tmp_path, cut):
    path = _filled(tmp_path / "run.jsonl")
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    with Store(path, HEADER) as store:
        torn = store.damaged
        assert len(store) == (3 if cut == 1 else 2)  # without its newline alone a line is still whole
        if cut > 1:
            assert list(torn) == [4]
            store.put({"n": 2}, [{"value": 5}])
        store.put({"n": 3}, [])
    with Store(path, HEADER) as store:
        assert len(store) == 4
        assert store.get({"n": 3}) == []
        assert store.damaged == torn


def test_a_damaged_line_in_the_middle_is_reported_and_skipped(tmp_path):
    path = _filled(tmp_path / "run.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[2] = b'\xff\x00{"unit"'
    path.write_bytes(b"\n".join(lines))
    with Store(path, HEADER) as store:
        assert store.damaged == {3: "cannot be read"}
        assert [store.get({"n": n}) is None for n in range(3)] == [False, True, False]


@pytest.mark.parametrize("change", [{"config": {"seeds": 4}}, {"experiment": "other"}])
def test_results_of_another_configuration_are_refused(tmp_path, change):
    path = _filled(tmp_path / "run.jsonl")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="expected results of"), Store(path, HEADER | change):
        pass
    assert path.read_bytes() == before
    with Store(path, HEADER):  # and the lock is free again
        pass


def test_an_older_schema_is_refused(tmp_path):
    path = _filled(tmp_path / "run.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":0'))
    with (
        pytest.raises(ValueError, match="expected schema 1, got 0, written by another version"),
        Store(path, HEADER),
    ):
        pass


def test_a_damaged_first_line_is_refused(tmp_path):
    path = _filled(tmp_path / "run.jsonl")
    path.write_bytes(path.read_bytes()[5:])
    with pytest.raises(ValueError, match="first line"), Store(path, HEADER):
        pass


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    code = (
        "import sys; from pathlib import Path; from experiments.store import Store\n"
        "try:\n    Store(Path(sys.argv[1]), {}).__enter__()\nexcept RuntimeError as e:\n    print(e)"
    )
    with Store(path, HEADER):
        said = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            check=True,
            cwd=os.getcwd(),
        )
    assert "another process" in said.stdout


def test_a_unit_is_kept_once(tmp_path):
    with Store(tmp_path / "run.jsonl", HEADER) as store:
        store.put({"a": 1, "b": 2}, [])
        with pytest.raises(ValueError, match="not finished"):
            store.put({"b": 2, "a": 1}, [])


def test_numbers_that_json_lacks_are_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "run.jsonl"
    with Store(path, HEADER) as store:
        with pytest.raises(ValueError, match="JSON"):
            store.put({"a": 1}, [{"loss": math.nan}])
        assert store.get({"a": 1}) is None
    assert len(path.read_text().splitlines()) == 1


def test_a_line_is_on_the_disk_when_put_returns(tmp_path, monkeypatch):
    synced = []
    path = tmp_path / "run.jsonl"
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(path.read_bytes()), real(fd)))
    with Store(path, HEADER) as store:
        store.put({"a": 1}, [{"x": 2}])
    line = json.loads(synced[-1].splitlines()[-1])
    assert line == {"unit": {"a": 1}, "records": [{"x": 2}], "sum": checksum(line)}


def test_notes_come_back_beside_the_records(tmp_path):
    path = tmp_path / "run.jsonl"
    with Store(path, HEADER) as store:
        store.put({"a": 1}, [{"x": 2}], {"seconds": 0.25})
    with Store(path, HEADER) as store:
        assert store.notes({"a": 1}) == {"seconds": 0.25}
        assert [line.unit for line in store.lines()] == [{"a": 1}]


def test_a_line_without_a_checksum_is_read_and_one_with_a_wrong_one_is_not(tmp_path):
    path = _filled(tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[1]["sum"]
    lines[2]["records"][0]["value"] = 0.25
    path.write_text("".join(canonical(line) + "\n" for line in lines))
    with Store(path, HEADER) as store:
        assert store.damaged == {3: "its checksum is wrong"}
        assert len(store) == 2


def _full_disk(monkeypatch, room):
    """Let ``room`` more bytes be written, then say that the disk is full, as the system does."""
    real, left = os.write, [room]

    def write(fd, content):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(fd, bytes(content)[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("room", [0, 1, 30])
def test_a_full_disk_takes_no_finished_unit_and_leaves_no_part_of_a_line(tmp_path, monkeypatch, room):
    path = _filled(tmp_path / "run.jsonl")
    before = path.read_bytes()
    with Store(path, HEADER) as store:
        with monkeypatch.context() as patch:
            _full_disk(patch, room)
            with pytest.raises(OSError, match=r"No space left.*what is finished is kept"):
                store.put({"n": 9}, [{"value": 1}])
        assert path.read_bytes() == before
        assert store.get({"n": 9}) is None
        store.put({"n": 9}, [{"value": 1}])  # with space again
    with Store(path, HEADER) as store:
        assert len(store) == 4
        assert store.damaged == {}


def test_a_full_disk_keeps_the_final_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "final.json"
    write_json(path, {"a": 1})

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["final.json"]


def test_a_process_killed_while_it_wrote_the_first_line_leaves_a_fresh_store(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"config": {"se')
    _filled(path)
    with Store(path, HEADER) as store:
        assert len(store) == 3
        assert store.damaged == {}


def test_an_open_store_is_held(tmp_path):
    path = tmp_path / "run.jsonl"
    assert not held(path)
    with Store(path, HEADER):
        assert held(path)
    assert not held(path)


def test_what_is_finished_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    path = _filled(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl.lock").touch()
    assert not path.stat().st_mode & 0o111  # results are no program
    real = os.open

    def read_only(name, flags, *more, **others):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return real(name, flags, *more, **others)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        assert not held(path)
        with Store(path, HEADER, writable=False) as store:
            assert len(store) == 3
            with pytest.raises(ValueError, match="got a closed one"):
                store.put({"n": 9}, [])
    with (
        Store(path, HEADER),
        pytest.raises(RuntimeError, match="another process is writing"),
        Store(path, HEADER, writable=False),
    ):
        pass


def test_write_json_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "final.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": math.inf})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["final.json"]


def test_digest_depends_on_values_not_on_order():
    assert digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert canonical({"b": 1, "a": 2}) == '{"a":2,"b":1}'
