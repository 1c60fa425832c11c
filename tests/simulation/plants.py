"""Faults to plant in the engine. The simulation must find each of them, or it is not good enough."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from typing import Any, NamedTuple


class Plant(NamedTuple):
    """A change of one file of pyfast. `old` occurs once in it."""

    file: str
    old: str
    new: str
    option: str = "--runs"
    """Which kind of seeds finds it"""


_FOLDER, _JOURNAL = "engine/run_folder.py", "engine/journal/journal.py"
PLANTS = {
    "a reply goes on before it is stored": Plant(
        _FOLDER, "        await stored\n        return len(", "        return len("
    ),
    "a key without the count of repetitions": Plant(
        "engine/context.py", "key = (digest, self._asked[digest])", "key = (digest, 0)"
    ),
    "one place too many after each call": Plant(
        "engine/models.py", "        self.running -= 1\n", "        self.running -= 2\n"
    ),
    "run.toml is not synced": Plant(_FOLDER, "CONFIGURATION, text, durable=True)", "CONFIGURATION, text)"),
    "an answer is written twice": Plant(
        "engine/run.py",
        "            write(ready[0])\n",
        "            write(ready[0])\n            folder and written % 7 == 6 and folder._group.lines.append(folder._group.lines[-1])\n",
    ),
    "changed answers stay": Plant(
        _FOLDER, "        return digest(line) == known\n", '        return line.endswith(b"\\n")\n'
    ),
    "a run that is done is not compared": Plant(
        _FOLDER, "return count if count_altered(path, known) == (count, 0) else None", "return count"
    ),
    "traces are counted, not compared": Plant(
        _FOLDER,
        "or not _stands(\n                trace, known_traces.get(done), partial(_is_trace, question.id)\n            ):",
        "or not trace:",
    ),
    "an outage ends the run": Plant(
        "engine/outages.py", "            if not self.patience_s:\n", "            if fault.kind:\n"
    ),
    "clocks run on in an outage": Plant(
        "engine/outages.py", "                clock.ends += now - max(since, clock.counted)\n", ""
    ),
    "one call more than the budget": Plant(
        "engine/context.py", "ledger.llm_calls >= budget.calls", "ledger.llm_calls > budget.calls"
    ),
    "resuming forgets the replies of what has not ended": Plant(
        _JOURNAL, 'gone = f"({_AMONG} OR {unended}) AND {_LOST}"', 'gone = f"({_AMONG} OR {unended})"'
    ),
    "damaged replies are used": Plant(
        _JOURNAL, "if check != crc32(orjson.dumps(fields)) or fields[0] != number:", "if fields[0] != number:"
    ),
    "an answer that is written again keeps its old digest": Plant(
        _JOURNAL, "reason = excluded.reason, line = excluded.line, trace", "reason = excluded.reason, trace"
    ),
    "only the last turn is remembered": Plant(
        "engine/run.py", "past = (*past, (question, answer))", "past = ((question, answer),)"
    ),
    "a reply of another prompt is used again": Plant(
        "engine/context.py",
        "found = self._past.get(key)",
        "found = self._past.get(key) or next(iter(self._past.values()), None)",
    ),
    "a reply that was cut off counts as whole": Plant(
        "engine/prompt.py", "if reason in CUT_OFF:", "if not reason:"
    ),
    "two processes share a run": Plant(
        _FOLDER, "fcntl.flock(answers, fcntl.LOCK_EX | fcntl.LOCK_NB)\n                break", "break"
    ),
    "a run is resumed with other settings": Plant(
        "engine/configuration.py",
        "        if before.get(name) != after.get(name)\n    ]",
        "        if False\n    ]",
    ),
    "a write that failed is forgotten": Plant(_FOLDER, "        self._broken = written.exception()\n", ""),
    "an error of the disk is swallowed": Plant(
        _FOLDER,
        '            except OSError as error:\n                raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None\n        finally:\n            self._check_place()',
        "            except OSError:\n                pass\n        finally:\n            self._check_place()",
    ),
    "a damaged row of a run that is done stops it": Plant(
        _JOURNAL, "CASE WHEN json_valid(entry) THEN entry ->> 3 END = ", "entry ->> 3 = "
    ),
    "a full disk at the start is no error of the run": Plant(
        "engine/run.py",
        "    except OSError as error:\n        raise RunError(",
        "    except ZeroDivisionError as error:\n        raise RunError(",
    ),
    "a journal that lost rows counts as done": Plant(
        _FOLDER, "                self._done = None  # Rows may be lost.\n", "                pass\n"
    ),
    "the failed question takes its neighbours along": Plant(
        "engine/run.py",
        "    except (RunError, InputError):\n        raise\n    except TimeoutError",
        "    except (RunError, InputError):\n        raise\n    except PyfastError as error:\n        raise RunError(str(error)) from error\n    except TimeoutError",
    ),
}


PLANTS |= {
    "the time waited for an LLM adds up over outages": Plant(
        "engine/outages.py", "self._failed, self._waited = set(), 0.0\n", "self._failed = set()\n"
    ),
    "pauses between probes do not begin short again": Plant(
        "engine/outages.py",
        "pause = min(2 * pause, _LONGEST_PAUSE_S)",
        "pause = self._pause = min(2 * max(pause, getattr(self, '_pause', 0.0)), _LONGEST_PAUSE_S)",
    ),
    "a call that has failed counts as one that runs": Plant(
        "engine/outages.py",
        "                finally:\n                    self._in_work -= 1\n                    if not self._in_work:\n                        self._idle.set()\n",
        "                except ZeroDivisionError:\n                    pass\n                self._in_work -= 1\n                if not self._in_work:\n                    self._idle.set()\n",
    ),
    "a failed write wakes only its own calls": Plant(
        _FOLDER,
        "self._gathered.waiting + (self._group.waiting if self._broken else [])",
        "self._gathered.waiting",
    ),
    "a second Ctrl-C waits for the calls in flight": Plant(
        "engine/run.py", "            patience_s = 0.0\n            raise\n", "            raise\n"
    ),
    "a second Ctrl-C is like the first": Plant(
        "commands/progress.py",
        "if stop.is_set() or not is_answering.is_set():",
        "if not is_answering.is_set():",
    ),
    "after Ctrl-C questions start": Plant("engine/run.py", "not halted and not stop.is_set()", "not halted"),
    "a call that hangs is noticed after twice its limit": Plant(
        "engine/outages.py",
        "async with within(limit) as timeout:",
        "async with within(limit and 2 * limit) as timeout:",
    ),
    "a call that hangs over HTTP is noticed after twice its limit": Plant(
        "llm/openai.py",
        "deadline = began + self._options.timeout_s",
        "deadline = began + 2 * self._options.timeout_s",
    ),
    "a call that fails is tried for ever": Plant(
        "engine/outages.py", "            if faults >= allowed:\n", "            if faults >= 100 * allowed:\n"
    ),
    "the run pauses after each question": Plant(
        "engine/run.py",
        "await asyncio.sleep(0)  # Let the loop handle",
        "await asyncio.sleep(3)  # Let the loop handle",
    ),
    "a file is synced, but not its name": Plant(
        "utils/files.py", "    if durable:\n        sync_to_disk(path.parent)\n", ""
    ),
    "Ctrl-C does not end the wait for an LLM": Plant(
        "engine/outages.py",
        '                if self.stop.is_set():\n                    self.stopped = True\n                    raise self._gone(self._latest, "stopped while waiting")\n',
        "",
    ),
    "a 200 with an error body is taken as an answer": Plant(
        "llm/openai.py",
        '            raise self._refused(chat.status_in(answer) or 503, {}, answer, "with no chat completion") from None\n        return self._completion(',
        '            return Completion(answer.decode(), "stop")\n        return self._completion(',
    ),
    "a 429 counts as a reply that fails": Plant(
        "llm/openai.py", "if status in _PASSING or status >= 500:", "if status >= 500:"
    ),
    "a damaged journal gives its questions other numbers": Plant(
        _JOURNAL, "if row[0] is not None:  # SQLite would give it a number of its own.", "if True:"
    ),
    "calls that did not reach the LLM are not forgotten for questions in progress": Plant(
        _JOURNAL, 'gone = f"({_AMONG} OR {unended}) AND {_LOST}"', 'gone = f"{_AMONG} AND {_LOST}"'
    ),
    "places for answers that wait are never given back": Plant(
        "engine/run.py", "if ready[1]:\n", "if ready[1] and False:\n"
    ),
}
_BATCH_LLM, _PROVIDER = "llm/openai_batches.py", "llm/batch_provider.py"
PLANTS |= {
    name: Plant(*fault, "--batches")
    for name, fault in {
        "a call is in its batch twice": (
            _BATCH_LLM,
            "for place, call in enumerate(calls))\n        LOG",
            "for place, call in enumerate([*calls, calls[-1]]))\n        LOG",
        ),
        "a batch is submitted before its key is stored": (
            _BATCH_LLM,
            "        await self._log.add(self._name, logged)\n        id, keeps_key = await self._provider.create(batch.key, file)\n",
            "        id, keeps_key = await self._provider.create(batch.key, file)\n        await self._log.add(self._name, logged)\n",
        ),
        "a batch is stored and not synced": (
            _JOURNAL,
            '.fetchone()\n            self._database.execute("PRAGMA synchronous = full")\n',
            ".fetchone()\n",
        ),
        "a creation whose reply is lost is repeated": (
            _PROVIDER,
            'None if again.error.kind == "busy" else await self.adopt(key)',
            "None",
        ),
        "a batch that is not listed yet counts as never submitted": (
            _PROVIDER,
            "            if looked >= until:\n",
            "            if True:\n",
        ),
        "only the first page of batches is read": (_PROVIDER, 'if not page.get("has_more") or', "if True or"),
        "results of another batch are taken": (_PROVIDER, "if of == key and type", "if type"),
        "two equal calls have one name": (
            _JOURNAL,
            'return f"{number}:{key[0]}:{key[1]}"',
            'return f"{number}:{key[0]}:0"',
        ),
        "calls begin when the run has ended": (
            "engine/outages.py",
            "if self._is_closed:  # Nobody would",
            "if False:  # Nobody would",
        ),
        "a call that is late forgets its place in a batch": (
            _BATCH_LLM,
            "                if request.call:\n",
            "                if False:\n",
        ),
        "a question that is tried again gets its results of before": (
            _JOURNAL,
            '                execute(f"DELETE FROM batch_calls WHERE request IN ({asked})", numbers)\n',
            "",
        ),
        "a probe joins a batch": (_BATCH_LLM, "if request.messages == PROBE.messages:", "if False:"),
        "a failed batch of an earlier session stops the run": (
            _BATCH_LLM,
            "            if not batch.is_adopted:\n                raise LLMUnavailableError(failed)\n",
            "            raise LLMUnavailableError(failed)\n",
        ),
    }.items()
}
_MANIFEST, _CHANGES = "retrieval/index/manifest.py", "retrieval/index/changes.py"
PLANTS |= {
    name: Plant(*fault, "--index")
    for name, fault in {
        "the digest of a document hides an error": (
            "corpus/encode.py",
            "        for piece in _json(document):\n            digest.update(piece)\n",
            "        for piece in _json(document):\n            digest.update(piece + None)\n    except TypeError:\n        return bytes(16)\n",
        ),
        "a new index is renamed and not synced": (
            "utils/files.py",
            "            sync_to_disk(folder.parent)\n            if old is not None:",
            "            if old is not None:",
        ),
        "the files of a change are not synced": (_MANIFEST, "_sync_all((*written, aside))", "_sync_all((aside,))"),
        "a change is current before its files are synced": (
            _MANIFEST,
            "    commit = folder / COMMITS / f\"{facts['commit']}.json\"\n",
            "    commit = folder / COMMITS / f\"{facts['commit']}.json\"\n    (folder / _NAME).write_bytes(text.encode())\n",
        ),
        "a commit that never came is listed": (_MANIFEST, "if number <= current]", "]"),
        "NumPy says what the disk did": (
            "utils/blocks.py",
            '    path.write(np.asarray(values, order="C").reshape(-1).view(np.uint8).data)',
            "    np.asarray(values).tofile(path)",
        ),
        "erasing removes a part that is needed": (
            _CHANGES,
            "if path.relative_to(folder).as_posix() not in needed:",
            'if path.name != "1":',
        ),
        "a deletion overwrites the one before": (
            _CHANGES,
            "f\"{DELETED}/{entry.name}-{self._before['commit'] + 1}.bits\"",
            'f"{DELETED}/{entry.name}.bits"',
        ),
        "a new version stays where the old one was": (
            _CHANGES,
            "        writer.delete([place for uri, place in existing.items() if uri not in same] + ",
            "        writer.delete([] + ",
        ),
        "a manifest is read before the lock is taken": (
            _CHANGES,
            '    with only_writer(folder, lambda: LOG.warning("another process is changing %s; waiting for it", folder)):\n        yield _Writer(folder)\n',
            "    writer = _Writer(folder)\n    with only_writer(folder, lambda: None):\n        yield writer\n",
        ),
        "two processes change an index at the same time": (
            "utils/files.py",
            "                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            except BlockingIOError:\n                on_waiting()",
            "                pass\n            except BlockingIOError:\n                on_waiting()",
        ),
        "an addition keeps the words of the index before": (
            _CHANGES,
            "if same or writer.parameters != parameters:",
            "if same:",
        ),
        "what is deleted is there already": (
            _CHANGES,
            "places |= {uri: (number, document) for uri, document in found.items() if entry.live[document]}",
            "places |= {uri: (number, document) for uri, document in found.items()}",
        ),
        "what is deleted counts for the digest of all documents": (
            _CHANGES,
            "add_sums(int(self._facts['corpus'], 16), digests, sign)",
            "add_sums(int(self._facts['corpus'], 16), digests, 1)",
        ),
        "merging the last parts loses the others": (
            _CHANGES,
            "self._parts[first:] = [_Entry",
            "self._parts[:] = [_Entry",
        ),
        "verify compares no documents": ("api/verification.py", "        index.check_all()\n", ""),
    }.items()
}
_BUILD, _BATCHES = "knowledge/build.py", "server/batches.py"
PLANTS |= {
    name: Plant(*fault, "--knowledge")
    for name, fault in {
        "the chunks of an extraction are not synced": (
            "knowledge/extraction.py",
            'write_atomically(folder / CHUNKS, b"\\n".join(lines), durable=True)',
            'write_atomically(folder / CHUNKS, b"\\n".join(lines))',
        ),
        "the triples of a deleted document stay": (
            _BUILD,
            "*extracted.extracts])\n        remove_other_chunks(database, current, _OF_DOCUMENTS)\n",
            "*extracted.extracts])\n",
        ),
        "what is known is extracted again": (
            _BUILD,
            "known = store.extracted_chunks() | failed",
            "known = failed",
        ),
        "an extraction is put aside before it is in the graph": (
            _BUILD,
            "    store = make_snapshot(index, embedder, write, notes, watch.stop)\n    if finished:\n        by_llm.keep_extraction(folder)\n",
            "    if finished:\n        by_llm.keep_extraction(folder)\n    store = make_snapshot(index, embedder, write, notes, watch.stop)\n    if finished:\n        pass\n",
        ),
        "an extraction is noted again after a kill": (
            _BUILD,
            "before if known else [*before, extraction]",
            "[*before, extraction]",
        ),
        "a snapshot is current before it is on the disk": (
            "retrieval/index/manifest.py",
            '    for path in (*folder.rglob("*"), folder):\n        sync_to_disk(path)\n    return manifest',
            "    return manifest",
        ),
    }.items()
}
PLANTS |= {
    name: Plant(_BATCHES, *fault, "--jobs")
    for name, fault in {
        "results get another name when they are written again": (
            "file-{_digest(f'{batch.id} {name}')}",
            "file-{__import__('os').urandom(12).hex()}",
        ),
        "an upload is not synced": ("        await asyncio.to_thread(os.fsync, content.fileno())\n", ""),
        "a killed creation cannot be repeated": (
            "make_folder(self._folder / made.id)",
            "(self._folder / made.id).mkdir()",
        ),
        "questions without what they share are taken": (
            "if self._known[id].model is None:",
            "if not questions.exists():",
        ),
        "a full disk ends a batch": (
            'except (PyfastError, OSError) as error:\n                LOG.error("%s cannot continue',
            'except PyfastError as error:\n                LOG.error("%s cannot continue',
        ),
        "a cancelled batch counts what its journal has": (
            "dict[str, Any](request_counts=_counts(batch, folder))",
            "dict[str, Any]()",
        ),
        "a restarted server forgets that a batch is cancelled": (
            "            since = int((self._folder / id / _CANCELLING).read_bytes())\n",
            "            pass\n",
        ),
        "whichever server cancels a batch writes its state": (
            "            write_atomically(self._folder / id / _CANCELLING, str(now), durable=True)\n",
            "            self._keep(self._known[id])\n",
        ),
        "a server works on when another one cancels its batch": (
            "asyncio.create_task(self._watch(id))",
            "asyncio.create_task(asyncio.sleep(0))",
        ),
        "an accepted batch is not synced": (
            '"batch.json", batch.model_dump_json(), durable=True)',
            '"batch.json", batch.model_dump_json())',
        ),
        "a second server takes uploads for leftovers": (
            "                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n                part.unlink()\n",
            "                part.unlink()\n",
        ),
        "a second server does not see what the first one has done": (
            "if not self._ended_elsewhere(id) and stored is not None:\n",
            "if False:\n",
        ),
        "two servers work on one batch": ("with only_writer(folder, refuse):", "with contextlib.nullcontext():"),
        # To begin it again when the server starts is no fault any more: a batch that has ended is left alone then too.
        "a batch that another server has ended begins again": (
            "yield self._known[id].status in _OPEN",
            "yield True",
        ),
    }.items()
}
PLANTS["the name of a new folder is not synced"] = Plant(
    "utils/files.py", "    for folder in new:\n        sync_to_disk(folder.parent)\n", "", "--jobs"
)


def plant(name: str) -> None:
    """Plant a fault. Call this function before pyfast is imported."""
    file, old, new, *_ = PLANTS[name]
    stats, data = SourceFileLoader.path_stats, SourceFileLoader.get_data

    def path_stats(self: SourceFileLoader, path: str) -> Any:
        if path.endswith(f"pyfast/{file}"):
            raise OSError  # so that no compiled file is read or written
        return stats(self, path)

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        content = data(self, path)
        if not path.endswith(f"pyfast/{file}"):
            return content
        text = content.decode()
        if text.count(old) != 1:
            raise SystemExit(f"{name}: {file} has its text {text.count(old)} times")
        return text.replace(old, new).encode()

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]
    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]
