// The list of questions: search, filters, order; fifty rows at a time.

const ROWS = 50;
const ORDERS = {
  place: ["order of the run", null],
  wrong: ["most wrong first", (columns, at) => -(columns.figures[at][0] ?? -1) ],
  slow: ["slowest first", (columns, at) => columns.seconds[at] ?? -1],
  tokens: ["most tokens first", (columns, at) => columns.tokens[at]],
  gold: ["most gold lost first", (columns, at) => columns.gold[at][1] - columns.gold[at][0]],
};

// By the first figure.
const RIGHT = {
  wrong: ["wrong or partly right", (figure) => figure !== null && figure < 1],
  none: ["score 0", (figure) => figure === 0],
  part: ["between 0 and 1", (figure) => figure > 0 && figure < 1],
  right: ["right", (figure) => figure === 1],
};

async function questionList(run, query) {
  const list = await loadList(run);
  const chosen = { q: "", system: "", state: "", type: "", reason: "", right: "", gold: "", order: "place", page: "0", ...Object.fromEntries(query) };
  if (!store.manifest.runs.some((one) => one.system === chosen.system)) chosen.system = "";
  const results = el("div", { "aria-live": "polite" });
  const render = () => {
    const { columns } = list;
    const found = filtered(columns, chosen);
    const page = Math.min(Number(chosen.page) || 0, Math.max(Math.ceil(found.length / ROWS) - 1, 0));
    results.replaceChildren(
      el("p", {}, `${plural(found.length, "question")} of ${number(sizeOf(list))}`),
      rowsOf(run, columns, found.slice(page * ROWS, (page + 1) * ROWS)),
      pages(found.length, page, (next) => change("page", String(next))) || "");
  };
  const change = (name, value) => {
    chosen[name] = value;
    if (name !== "page") chosen.page = "0";
    const kept = Object.entries(chosen).filter(([key, one]) => one && !(key === "order" && one === "place") && !(key === "page" && one === "0"));
    const { runs } = store.manifest;
    const shownRun = !chosen.system || runs[run].system === chosen.system ? run : runs.findIndex((one) => one.system === chosen.system);
    const place = `${address("questions", shownRun)}?${new URLSearchParams(kept)}`;
    if (name === "system") { location.hash = place; return; } // other runs, and perhaps another list
    history.replaceState(null, "", place);
    render();
  };
  refreshed = async () => { await loadList(run); render(); };
  render();
  return el("div", {}, el("h1", {}, "Questions"), runTabs(run, "questions", chosen.system), controls(list.columns, chosen, change), results);
}

function filtered(columns, chosen) {
  const words = chosen.q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (let at = 0; at < (columns.id || []).length; at += 1) {
    if (chosen.state && columns.state[at] !== chosen.state) continue;
    if (chosen.type && columns.type[at] !== chosen.type) continue;
    if (chosen.reason && columns.reason[at] !== chosen.reason) continue;
    const first = columns.figures[at][0];
    if (chosen.right && !RIGHT[chosen.right][1](first ?? null)) continue;
    const [reached, gold] = columns.gold[at];
    if (chosen.gold === "lost" && !(reached < gold)) continue;
    if (chosen.gold === "reached" && !(gold && reached === gold)) continue;
    if (words.length) {
      const text = `${columns.id[at]} ${columns.question[at] || ""} ${columns.answer[at] || ""}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    found.push(at);
  }
  const key = (ORDERS[chosen.order] || ORDERS.place)[1];
  if (key) {
    const keys = new Map(found.map((at) => [at, key(columns, at)]));
    found.sort((a, b) => keys.get(b) - keys.get(a) || a - b);
  }
  return found;
}

function controls(columns, chosen, change) {
  const values = (name) => [...new Set(columns[name] || [])].filter(Boolean).sort().slice(0, 200);
  const choice = (name, label, options) => options.length > 1 || chosen[name]
    ? el("label", {}, label, el("select", { on: { change: (event) => change(name, event.target.value) } },
      options.map(([value, text]) => el("option", { value, selected: chosen[name] === value }, text))))
    : null;
  const systems = [...new Set(store.manifest.runs.map((one) => one.system))];
  const any = (options) => [["", "any"], ...options.map((value) => [value, value])];
  const scored = (columns.figures || []).some((figures) => figures.length);
  return el("form", { class: "controls", role: "search", on: { submit: (event) => event.preventDefault() } },
    el("label", { class: "wide" }, "Search question, answer or id",
      el("input", { type: "search", value: chosen.q, on: { input: (event) => change("q", event.target.value) } })),
    choice("system", "System", systems.length > 1 ? any(systems) : []),
    choice("state", "State", any(values("state"))),
    choice("type", "Type", values("type").length > 1 ? any(values("type")) : []),
    choice("reason", "Reason", values("reason").length ? any(values("reason")) : []),
    scored ? choice("right", "Answer", [["", "any"], ...Object.entries(RIGHT).map(([value, [text]]) => [value, text])]) : null,
    (columns.gold || []).some(([, gold]) => gold) ? choice("gold", "Gold passages", [["", "any"], ["lost", "some lost or not found"], ["reached", "all reached the answer"]]) : null,
    choice("order", "Order", Object.entries(ORDERS).map(([name, [text]]) => [name, text])));
}

function rowsOf(run, columns, places) {
  const { figures } = store.manifest.runs[run];
  return table("Questions", ["question", "answer", "state", ...figures.slice(0, 2), "gold passages", "time", "tokens"], places.map((at) => [
    el("a", { href: address("question", run, columns.id[at]) }, foreign(columns.question[at] || columns.id[at])),
    columns.reason[at] ? foreign(columns.reason[at]) : answerText(columns.answer[at], columns.state[at]),
    badge(columns.state[at]),
    ...figures.slice(0, 2).map((_, place) => score(columns.figures[at][place])),
    columns.gold[at][1] ? `${columns.gold[at][0]} of ${columns.gold[at][1]}` : "none named",
    seconds(columns.seconds[at]), number(columns.tokens[at])]), { class: "list" });
}

function pages(count, page, go) {
  const last = Math.max(Math.ceil(count / ROWS) - 1, 0);
  if (!last) return null;
  const button = (text, to, disabled) => el("button", { type: "button", disabled, on: { click: () => go(to) } }, text);
  return el("nav", { class: "pages", "aria-label": "Pages" }, button("Previous", page - 1, page === 0),
    ` page ${number(page + 1)} of ${number(last + 1)} `, button("Next", page + 1, page === last));
}

// The runs of a system, or of all; `id` of a question.
function runTabs(run, view, system = "", id = null) {
  const { runs } = store.manifest;
  const query = system ? `?${new URLSearchParams({ system })}` : "";
  return runs.length < 2 ? null : el("nav", { class: "tabs", "aria-label": "Runs" }, runs.map((one, at) => (system && one.system !== system ? null :
    el("a", { href: address(view, at, ...(id === null ? [] : [id])) + query, "aria-current": at === run ? "page" : null }, foreign(one.name)))));
}
