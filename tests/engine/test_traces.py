"""The traces' file: whatever ends the process, what was written is read, and the rest comes behind it."""

from pathlib import Path

import pytest
import zstandard
from runs import Watched, answers, ask_about, direct, go, moody, records, traces, winding

from pyfast import Run
from pyfast.engine.traces import LINES, Traces, TraceWriter, count_traces, read_traces, records_of
from pyfast.errors import InputError

FILE = "traces.jsonl.zst"


def lines(first: int, end: int) -> list[bytes]:
    """Of very different lengths; one has more than the 128 kB that a block may hold."""
    return [
        b'{"id":"q%d","trace":"%s"}\n' % (i, b"%d" % i * ((i * 7919) % 50 or 90_000)) for i in range(first, end)
    ]


def write(path: Path, done: int, *groups: int) -> None:
    """One session: groups that end with these numbers of lines."""
    writer = TraceWriter(path)
    writer.go_on(done)
    for end in groups:
        writer.write(lines(done, end))
        done = end
    writer.close()


def told(path: Path) -> list[bytes]:
    """What zstd itself reads, of frames that are whole."""
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().splitlines(True)


@pytest.mark.parametrize("groups", [(400,), (1, 2, 3, 400), (127, 128, 129, 256, 300, 400), tuple(range(1, 401))])
def test_what_is_written_is_read(tmp_path: Path, groups: tuple[int, ...]) -> None:
    path = tmp_path / FILE
    write(path, 0, *groups)
    assert told(path) == list(read_traces(path)) == lines(0, 400) and count_traces(path) == 400
    found = Traces(path)
    for number in (399, 0, 127, 128, 1, 390):
        assert found.line(number) == lines(number, number + 1)[0]
    with pytest.raises(InputError, match=r"line 401 cannot be read"):
        found.line(400)
    assert path.stat().st_size < sum(map(len, lines(0, 400))) / 20


def test_all_that_was_written_is_there_before_the_end(tmp_path: Path) -> None:
    """A process that is killed closes nothing."""
    path = tmp_path / FILE
    writer = TraceWriter(path)
    for end in range(10, 301, 10):
        writer.write(lines(end - 10, end))
        assert count_traces(path) == end
        assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
        assert Traces(path).line(end - 1) == lines(end - 1, end)[0]
    assert list(read_traces(path)) == lines(0, 300)


def test_a_file_cut_anywhere_goes_on(tmp_path: Path) -> None:
    path = tmp_path / FILE
    write(path, 0, 100, 140, 200, 270, 300)
    whole, most = path.read_bytes(), 0
    for length in [*range(40), *range(40, len(whole), len(whole) // 60), len(whole)]:
        path.write_bytes(whole[:length])
        left = list(read_traces(path))
        assert left == lines(0, len(left)) and count_traces(path) == len(left) and len(left) >= most
        most = len(left)
        write(path, len(left), 300)
        assert told(path) == lines(0, 300)
    assert most == 300


@pytest.mark.parametrize("done", [0, 1, 127, 128, 129, 255, 256, 299, 300])
def test_what_follows_is_cut_off(tmp_path: Path, done: int) -> None:
    """By the first write, not before: a session that has nothing to do changes nothing."""
    path = tmp_path / FILE
    write(path, 0, 50, 300)
    before = path.read_bytes()
    write(path, done)
    assert path.read_bytes() == before
    write(path, done, done + 1, 350)
    assert told(path) == lines(0, 350)


def test_a_run_goes_on_wherever_its_traces_end(tmp_path: Path) -> None:
    """Answers without their traces come again from the journal; the LLM is asked nothing."""
    number = LINES + 20
    go(tmp_path, winding, Watched(moody), ask_about(number))
    before, beside, file = answers(tmp_path), traces(tmp_path), (tmp_path / FILE).read_bytes()
    assert len(beside.splitlines()) == number
    for damaged in (file[:-1], file[:-30], file[: len(file) // 2], file[:3], b"", b"\x00" * 100, None):
        if damaged is None:
            (tmp_path / FILE).unlink()
        else:
            (tmp_path / FILE).write_bytes(damaged)
        go(tmp_path, winding, llm := Watched(moody), ask_about(number))
        assert (answers(tmp_path), traces(tmp_path), llm.given) == (before, beside, 0)


def test_a_trace_that_is_not_the_questions_is_told(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(), ask_about(3))
    found = traces(tmp_path).splitlines(keepends=True)
    for wrong in ([found[1], found[0], found[2]], found[:2], [found[0], b"{}\n", found[2]], [b"[", *found[1:]]):
        (tmp_path / FILE).write_bytes(zstandard.ZstdCompressor().compress(b"".join(wrong)))
        run = Run(tmp_path)
        assert [record.answer for record in run.records] == [record.answer for record in Run(tmp_path).records]
        with pytest.raises(InputError, match="damaged") as error:
            [record.trace for record in run.records]
        assert "\n" not in str(error.value)
        with pytest.raises(InputError, match="damaged"):
            list(records_of(tmp_path / "answers.jsonl"))


def test_traces_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    number = 2 * LINES + 3
    go(tmp_path, winding, Watched(moody), ask_about(number))
    run = Run(tmp_path)
    assert [record.as_json() for record in run.records] == records(tmp_path)
    run = Run(tmp_path)
    record = run.records[5]
    (tmp_path / FILE).unlink()  # nobody needs it until a trace is asked for
    assert [found.state for found in run.records]
    with pytest.raises(InputError, match=r"traces\.jsonl\.zst: No such file"):
        _ = record.trace


def test_a_frame_that_unpacks_to_far_too_much_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyfast.engine.traces._LARGEST_FRAME", 1 << 20)
    frame = zstandard.ZstdCompressor(1, write_checksum=True).compressobj()
    bomb = b"".join(frame.compress(bytes(1 << 20)) for _ in range(20)) + frame.compress(b"\n") + frame.flush()
    (tmp_path / FILE).write_bytes(bomb)
    assert len(bomb) < 1 << 16 and list(read_traces(tmp_path / FILE)) == []
    with pytest.raises(InputError, match="line 1 cannot be read"):
        Traces(tmp_path / FILE).line(0)
