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
  const path = `data/${folder}/questions-${String(columns.chunk[place]).padStart(5, "0")}.bin`;
  const key = `${path} ${columns.start[place] + columns.size[place]}`;
  let blob = [...store.chunks].find(([name, held]) => name === path && held.size >= columns.start[place] + columns.size[place]);
  blob = blob ? blob[1] : await (await fetched(path)).blob();
  store.chunks.delete(path);
  store.chunks.set(path, blob);
  if (store.chunks.size > CHUNKS_HELD) store.chunks.delete(store.chunks.keys().next().value);
  return unpacked(blob.slice(columns.start[place], columns.start[place] + columns.size[place]));
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
