// The manifest, the list and the details: each is loaded when it is needed.

const CHUNKS_HELD = 4;
const store = { manifest: null, lists: [], single: null, chunks: new Map() };

async function fetched(path) {
  const response = await fetch(path, { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response;
}

const unpacked = (blob) => new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).json();

async function loadManifest() {
  store.manifest = await (await fetched("manifest.json")).json();
  store.lists = store.manifest.runs.map((run, at) => {
    const held = store.lists[at];
    return held && held.folder === run.folder ? held : { folder: run.folder, files: 0, columns: {}, at: null };
  });
  return store.manifest;
}

// The list of a run, with the files that are new since the last call.
async function loadList(run) {
  const list = store.lists[run];
  const { folder, lists } = store.manifest.runs[run];
  list.loading = (list.loading || Promise.resolve()).then(async () => {
    while (list.files < lists.length) {
      const part = await unpacked(await (await fetched(`data/${folder}/${lists[list.files].file}`)).blob());
      for (const [name, values] of Object.entries(part)) {
        const column = (list.columns[name] = list.columns[name] || []);
        for (const value of values) column.push(value);
      }
      list.files += 1;
      list.at = null;
    }
  });
  await list.loading;
  return list;
}

const sizeOf = (list) => (list.columns.id || []).length;

// The place of a question in a run's list; undefined if it is not there.
async function placeOf(run, id) {
  const list = await loadList(run);
  if (!list.at) list.at = new Map((list.columns.id || []).map((one, place) => [one, place]));
  return list.at.get(id);
}

async function loadQuestion(run, id) {
  if (store.single) return store.single;
  const place = await placeOf(run, id);
  if (place === undefined) return null;
  const { columns, folder } = store.lists[run];
  const question = await member(folder, "questions", columns.chunk[place], columns.start[place], columns.size[place]);
  question.folder = folder;
  return question;
}

// What one member of a chunk holds. The chunks are blobs: they take no room among JavaScript's objects.
async function member(folder, kind, chunk, start, size) {
  const path = `data/${folder}/${kind}-${String(chunk).padStart(5, "0")}.bin`;
  let blob = store.chunks.get(path);
  if (!blob || blob.size < start + size) blob = await (await fetched(path)).blob(); // the run has gone on since
  store.chunks.delete(path);
  store.chunks.set(path, blob);
  if (store.chunks.size > CHUNKS_HELD) store.chunks.delete(store.chunks.keys().next().value);
  return unpacked(blob.slice(start, start + size));
}

// A part of a document: in the page of a single question it is there, else in a chunk.
async function loadPart(question, key) {
  const place = question.documents[key];
  return Array.isArray(place) ? member(question.folder, "documents", ...place) : place;
}

const scripts = new Map();

// A library of the folder `vendor`, loaded once.
function library(name, global) {
  if (window[global]) return Promise.resolve(window[global]);
  if (!scripts.has(name)) {
    scripts.set(name, new Promise((resolve, reject) => {
      const tag = document.createElement("script");
      tag.src = `vendor/${name}`;
      tag.addEventListener("load", () => resolve(window[global]));
      tag.addEventListener("error", () => reject(new Error(`vendor/${name} cannot be loaded`)));
      document.head.append(tag);
    }));
  }
  return scripts.get(name);
}
