// Several runs: questions by disagreement, and two traces side by side.

async function compareList() {
  const { runs } = store.manifest;
  const lists = await Promise.all(runs.map((_, at) => loadList(at)));
  await Promise.all(runs.map((_, at) => placeOf(at, "")));
  const rows = [];
  for (const id of lists[0].columns.id || []) {
    const places = lists.map((list) => list.at.get(id));
    if (places.some((place) => place === undefined)) continue;
    const values = lists.map((list, at) => list.columns.figures[places[at]][0] ?? null);
    const known = values.filter((value) => value !== null);
    const answers = lists.map((list, at) => list.columns.answer[places[at]]);
    const apart = known.length > 1 ? Math.max(...known) - Math.min(...known) : 0;
    const differ = new Set(answers.map((answer) => (answer || "").trim().toLowerCase())).size - 1;
    rows.push({ id, places, values, answers, apart, differ });
  }
  rows.sort((a, b) => b.apart - a.apart || b.differ - a.differ);
  let page = 0;
  const results = el("div", {});
  const render = () => results.replaceChildren(
    table("Questions by disagreement", ["question", ...runs.map((run) => foreign(run.name))], rows.slice(page * ROWS, (page + 1) * ROWS).map((row) => [
      el("a", { href: address("compare", row.id) }, foreign(lists[0].columns.question[row.places[0]] || row.id)),
      ...row.answers.map((answer, at) => [row.values[at] === null ? "" : badge(row.values[at] === 1 ? "right" : row.values[at] > 0 ? "partly" : "wrong", score(row.values[at])), " ", answerText(answer, lists[at].columns.state[row.places[at]])])]), { class: "list" }),
    pages(rows.length, page, (next) => { page = next; render(); }) || "");
  render();
  const disagree = rows.filter((row) => row.apart > 0 || row.differ > 0).length;
  return el("div", {}, el("h1", {}, "Comparison"),
    el("p", {}, `${plural(rows.length, "question")} in all runs; ${number(disagree)} with different answers or scores`), results);
}

async function sideBySide(id) {
  const { runs } = store.manifest;
  const questions = await Promise.all(runs.map((_, at) => loadQuestion(at, id)));
  const known = questions.find(Boolean);
  return el("div", {}, el("h1", {}, foreign((known && known.question) || id)),
    el("p", {}, el("a", { href: "#/compare" }, "All questions by disagreement")),
    el("div", { class: "side" }, questions.map((question, at) => el("div", { class: "box" },
      el("h2", {}, el("a", { href: address("question", at, id) }, foreign(runs[at].name))),
      question ? [answerView(question), goldPath(question), pictureOf(question), pathView(question), callsView(question)] : el("p", {}, "This run has no such question.")))));
}
