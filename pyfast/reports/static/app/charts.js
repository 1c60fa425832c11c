// Charts with Observable Plot. It is loaded after the page is shown.

async function drawChart(place, label, options) {
  await library("d3.min.js", "d3");
  const Plot = await library("plot.umd.min.js", "Plot");
  const width = Math.min(Math.max(place.clientWidth, 260), 640);
  const drawn = Plot.plot({ width, height: 200, marginLeft: 56, className: "plot", ...options(Plot) });
  for (const part of drawn.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label"); // one name is enough
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", label);
  place.replaceChildren(drawn);
}

// A chart that is drawn when the browser has time.
function chart(label, options) {
  const place = el("div", { class: "chart" });
  const figure = el("figure", {}, el("figcaption", {}, label), place);
  const draw = () => drawChart(place, label, options).catch((error) => place.replaceChildren(el("p", {}, String(error.message))));
  (window.requestIdleCallback || window.setTimeout)(draw);
  return figure;
}
