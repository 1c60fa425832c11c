// Addresses, navigation, and the page that follows a run.

const FOLLOW_MS = 3000;
let refreshed = null; // shows what is new on the page at hand, in a run that goes on
let turn = 0;

async function view(parts, query) {
  const [place, run, id] = parts;
  const runs = store.manifest.runs.length;
  if (place === "questions" && Number(run) < runs) return questionList(Number(run), query);
  if (place === "question" && Number(run) < runs) {
    const question = await loadQuestion(Number(run), id);
    return question ? questionView(question, Number(run)) : el("p", {}, "This run has no such question.");
  }
  if (place === "compare") return run === undefined ? compareList() : sideBySide(run);
  refreshed = async () => show(overview());
  return overview();
}

function navigation() {
  const { runs } = store.manifest;
  const links = [["#/", "Overview"], ["#/questions/0", "Questions"], ...(runs.length > 1 ? [["#/compare", "Compare"]] : [])];
  return el("header", {}, el("nav", { "aria-label": "Views" }, el("span", { class: "brand" }, "pyfast"),
    links.map(([href, text]) => el("a", { href }, text))));
}

function show(content) {
  document.getElementById("app").replaceChildren(content);
}

async function route() {
  const own = (turn += 1);
  const [path, query] = location.hash.slice(2).split("?");
  refreshed = null;
  let content;
  try {
    content = await view(path.split("/").filter(Boolean).map(decodeURIComponent), new URLSearchParams(query || ""));
  } catch (error) {
    content = el("p", { role: "alert" }, `This cannot be shown: ${error.message}`);
  }
  if (own !== turn) return; // the reader has gone on
  show(content);
  document.title = (document.querySelector("h1") || {}).textContent || "pyfast";
  window.scrollTo(0, 0);
}

async function follow() {
  const before = JSON.stringify(store.manifest);
  await loadManifest();
  if (refreshed && JSON.stringify(store.manifest) !== before) await refreshed();
}

async function start() {
  const embedded = document.getElementById("question");
  if (embedded) {
    store.single = JSON.parse(embedded.textContent);
    show(questionView(store.single, null));
    return;
  }
  if (location.protocol === "file:") return; // the page says what to do
  await loadManifest();
  document.body.prepend(navigation());
  window.addEventListener("hashchange", route);
  await route();
  if (store.manifest.live) setInterval(() => follow().catch(() => {}), FOLLOW_MS);
}

start().catch((error) => show(el("p", { role: "alert" }, `This report cannot be read: ${error.message}`)));
