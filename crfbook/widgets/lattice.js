// The lattice of a sentence: infer() computes, render() draws. Scores are in logarithms; null forbids.
// The recursions are those of chapter 02, in its symbols.

const lse = xs => { // log sum exp
  const top = Math.max(...xs);
  return top === -Infinity ? top : top + Math.log(xs.reduce((sum, x) => sum + Math.exp(x - top), 0));
};
const argmax = xs => xs.indexOf(Math.max(...xs)); // of equal ones the first
const score = x => (x === null ? -Infinity : x);

export function infer(node, edge) {
  node = node.map(row => row.map(score));
  edge = edge.map(row => row.map(score));
  const T = node.length, L = node[0].length, range = [...Array(L).keys()];
  const table = () => node.map(() => Array(L).fill(0));
  const [alpha, beta, delta, back] = [table(), table(), table(), table()];
  for (let t = 0; t < T; t++)
    for (const y of range) {
      const sums = t ? range.map(yp => alpha[t - 1][yp] + edge[yp][y]) : [0];
      const best = t ? range.map(yp => delta[t - 1][yp] + edge[yp][y]) : [0];
      alpha[t][y] = node[t][y] + lse(sums);
      back[t][y] = argmax(best);
      delta[t][y] = node[t][y] + best[back[t][y]];
    }
  for (let t = T - 2; t >= 0; t--)
    for (const yp of range) beta[t][yp] = lse(range.map(y => edge[yp][y] + node[t + 1][y] + beta[t + 1][y]));
  const logZ = lse(alpha[T - 1]), possible = logZ > -Infinity;
  const proba = x => (possible ? Math.exp(x - logZ) : 0);
  const pNode = alpha.map((row, t) => row.map((a, y) => proba(a + beta[t][y])));
  const pEdge = node.map((_, t) => range.map(yp => range.map(y =>
    (t ? proba(alpha[t - 1][yp] + edge[yp][y] + node[t][y] + beta[t][y]) : 0))));
  const viterbi = [argmax(delta[T - 1])];
  for (let t = T - 1; t > 0; t--) viterbi.unshift(back[t][viterbi[0]]);
  const total = path => path.reduce((sum, y, t) => sum + node[t][y] + (t ? edge[path[t - 1]][y] : 0), 0);
  const posterior = pNode.map(argmax);
  return {
    alpha, beta, logZ, pNode, pEdge, possible, viterbi, posterior,
    bestScore: Math.max(...delta[T - 1]), posteriorScore: total(posterior),
  };
}

const STYLE = `
.crfbook-lattice { font: 14px/1.45 system-ui, sans-serif; color: inherit; max-width: 46rem; }
.crfbook-lattice svg { width: 100%; height: auto; touch-action: none; overflow: visible; }
.crfbook-lattice fieldset { border: 1px solid #8888; border-radius: 4px; margin: .4em 0; padding: .3em .7em;
  display: flex; flex-wrap: wrap; gap: .3em .8em; align-items: center; }
.crfbook-lattice legend { font-size: 1em; font-weight: 600; float: none; width: auto; padding: 0 .3em; margin: 0; }
.crfbook-lattice label { display: inline-flex; gap: .35em; align-items: center; margin: 0; }
.crfbook-lattice :is(select, button, input) { font: inherit; accent-color: #0b6fa4; }
.crfbook-lattice input[type=range] { width: 11em; }
.crfbook-lattice .scroll { overflow-x: auto; } .crfbook-lattice table { border-collapse: collapse; margin: .4em 0; }
.crfbook-lattice :is(td, th) { padding: .1em .6em; text-align: right; border-bottom: 1px solid #8884; }
.crfbook-lattice .apart { outline: 2px solid #b8480c; } .crfbook-lattice output { min-width: 4em; }
.crfbook-lattice circle { stroke: #2a78a8; stroke-width: 1.5; cursor: ns-resize; }
.crfbook-lattice circle.chosen { stroke-width: 4; } .crfbook-lattice text { fill: currentColor; font-size: 12px; }
.crfbook-lattice text.value { pointer-events: none; text-anchor: middle; }
.crfbook-lattice line { stroke: #888; } .crfbook-lattice line.forbidden { stroke: none; }
.crfbook-lattice line.viterbi { stroke: #c8570f; stroke-opacity: .9; }
.crfbook-lattice line.posterior { stroke: #0a7d5a; stroke-dasharray: 6 4; }`;

const RANGE = 8; // sliders go from -RANGE to RANGE, or to the largest score that is given
const make = (name, attributes = {}, ...children) => {
  const svg = ["svg", "circle", "line", "text", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const shown = x => (x === -Infinity ? "−∞" : x.toFixed(2).replace("-", "−"));
const labelled = (text, control) => make("label", {}, text, control);
const choice = names => make("select", {}, ...names.map((name, i) => make("option", { value: i }, name)));

export function render({ model, el }) {
  const start = JSON.stringify(model.get("model"));
  const { words, labels } = JSON.parse(start);
  let { node, edge } = JSON.parse(start);
  const T = words.length, L = labels.length, last = 2 * T + 1;
  const most = Math.max(RANGE, ...[...node, ...edge].flat().map(x => Math.ceil(Math.abs(x ?? 0))));
  el.classList.add("crfbook-lattice");
  el.replaceChildren(make("style", {}, STYLE));

  // ---- controls: each a native element, with a label of its own
  const slider = () => make("input", { type: "range", min: -most, max: most, step: 0.1 });
  const editor = (title, ...chosen) => ({
    chosen, value: slider(), text: make("output"), forbid: make("input", { type: "checkbox" }), title,
  });
  const word = choice(words.map((w, t) => `${t + 1} ${w}`)), label = choice(labels);
  const from = choice(labels), to = choice(labels);
  const nodes = editor("Score of a label", word, label), edges = editor("Score of a transition", from, to);
  const step = make("input", { type: "range", min: 1, max: last, step: 1 });
  step.value = last;
  const said = make("p", { role: "status" }), results = make("p", { class: "results" });
  const buttons = ["Back", "Forward", "Start again"].map(name => make("button", { type: "button" }, name));
  const [before, after, reset] = buttons;
  const group = (title, ...parts) => make("fieldset", {}, make("legend", {}, title), ...parts);
  const of = one => [labelled("score", one.value), one.text, labelled("forbidden", one.forbid)];
  el.append(
    group(nodes.title, labelled("word", word), labelled("label", label), ...of(nodes)),
    group(edges.title, labelled("from", from), labelled("to", to), ...of(edges)),
    group("Messages", before, labelled("step", step), after, reset), said,
  );

  // ---- the picture: a column a word, a row a label
  const x = t => 90 + t * 110, y = k => 40 + k * 50;
  const svg = make("svg", { viewBox: `0 0 ${x(T - 1) + 60} ${y(L - 1) + 60}`, role: "img" });
  svg.style.maxWidth = `${1.3 * (x(T - 1) + 60)}px`;
  const lines = [], circles = words.map(() => []), values = words.map(() => []);
  for (let t = 1; t < T; t++)
    for (let a = 0; a < L; a++)
      for (let b = 0; b < L; b++) {
        const [dx, dy] = [x(t) - x(t - 1), y(b) - y(a)].map((d, _, both) => d * 19 / Math.hypot(...both)); // a radius
        const ends = { x1: x(t - 1) + dx, y1: y(a) + dy, x2: x(t) - dx, y2: y(b) - dy };
        lines.push({ t, a, b, line: make("line", ends) });
        svg.append(lines.at(-1).line);
      }
  words.forEach((name, t) => {
    labels.forEach((_, k) => {
      circles[t][k] = make("circle", { cx: x(t), cy: y(k), r: 19 });
      values[t][k] = make("text", { class: "value", x: x(t), y: y(k) + 4 });
      svg.append(circles[t][k], values[t][k]);
      drag(circles[t][k], t, k);
    });
    svg.append(make("text", { class: "value", x: x(t), y: y(L - 1) + 45 }, name));
  });
  labels.forEach((name, k) => svg.append(make("text", { x: 4, y: y(k) + 4 }, name)));
  const table = make("table"), scroll = make("div", { class: "scroll", tabindex: 0, role: "region" }, table);
  scroll.setAttribute("aria-label", "marginals and the two labellings");
  el.append(svg, results, scroll);

  function drag(circle, t, k) { // up raises the score of a label, down lowers it
    circle.addEventListener("pointerdown", event => {
      [word.value, label.value] = [t, k];
      const first = event.clientY, old = node[t][k];
      circle.setPointerCapture(event.pointerId);
      circle.onpointermove = now => {
        if (old !== null) node[t][k] = Math.max(-most, Math.min(most, old + (first - now.clientY) / 20));
        changed();
      };
      circle.onpointerup = () => { circle.onpointermove = null; changed(true); };
      draw();
    });
  }

  // ---- what changes what
  const at = one => (one === nodes ? [node, +word.value, +label.value] : [edge, +from.value, +to.value]);
  for (const one of [nodes, edges]) {
    for (const select of one.chosen) select.addEventListener("change", draw);
    const set = () => {
      const [rows, i, j] = at(one);
      rows[i][j] = one.forbid.checked ? null : +one.value.value;
    };
    one.value.addEventListener("input", () => { set(); changed(); });
    one.value.addEventListener("change", () => changed(true));
    one.forbid.addEventListener("change", () => { set(); changed(true); });
  }
  const go = to => { step.value = to; draw(); };
  step.addEventListener("input", draw);
  before.addEventListener("click", () => go(+step.value - 1));
  after.addEventListener("click", () => go(+step.value + 1));
  reset.addEventListener("click", () => { ({ node, edge } = JSON.parse(start)); step.value = last; changed(true); });

  function changed(done = false) {
    draw();
    if (done) {
      model.set("model", { words, labels, node, edge });
      model.save_changes();
    }
  }

  function draw() {
    const found = infer(node, edge), now = +step.value;
    const forward = now <= T, whole = now === last, t = forward ? now - 1 : 2 * T - now;
    for (const one of [nodes, edges]) {
      const [rows, i, j] = at(one), value = rows[i][j];
      one.forbid.checked = value === null;
      one.value.disabled = value === null;
      if (value !== null) one.value.value = value;
      one.text.textContent = shown(score(value));
      one.value.setAttribute("aria-label", `${one.title}: ${one.chosen.map(c => c.selectedOptions[0].text).join(", ")}`);
      one.value.setAttribute("aria-valuetext", shown(score(value)));
    }
    const name = whole ? "marginals" : forward ? `forward message at ${words[t]}` : `backward message at ${words[t]}`;
    step.setAttribute("aria-valuetext", name);
    const rows = whole ? found.pNode : forward ? found.alpha : found.beta;
    words.forEach((_, i) => labels.forEach((_, k) => {
      const there = whole || (forward ? i <= t : i >= t), value = rows[i][k];
      const mass = whole ? value : Math.exp(value - lse(rows[i]));
      values[i][k].textContent = there ? (whole ? value.toFixed(2) : shown(value)) : "";
      circles[i][k].setAttribute("fill", there ? `rgba(60, 140, 200, ${0.08 + 0.6 * (mass || 0)})` : "#8881");
      circles[i][k].setAttribute("class", i === +word.value && k === +label.value ? "chosen" : "");
    }));
    for (const { t: i, a, b, line } of lines) {
      const on = path => whole && found.possible && path[i - 1] === a && path[i] === b;
      const read = !whole && i === (forward ? t : t + 1);
      const width = whole ? 0.4 + 7 * found.pEdge[i][a][b] : read ? 2 : 0.4;
      const kind = on(found.viterbi) ? "viterbi" : on(found.posterior) ? "posterior" : "";
      line.setAttribute("class", edge[a][b] === null ? "forbidden" : kind);
      line.setAttribute("stroke-width", kind ? Math.max(3, width) : width);
    }
    const values_ = !found.possible ? "" : labels.map((one, k) => `${one} ${shown(rows[t]?.[k] ?? 0)}`).join(", ");
    const path = ys => ys.map(k => labels[k]).join(" ");
    said.textContent = whole
      ? "Probability of each label at each word. Orange: Viterbi. Green, dashed: posterior decoding, where it parts."
      : `Step ${now} of ${last}, ${name}, in logarithms: ${values_}.`;
    results.textContent = !found.possible ? "log Z = −∞: every labelling is forbidden."
      : `log Z = ${shown(found.logZ)}. Viterbi: ${path(found.viterbi)}, probability `
        + `${Math.exp(found.bestScore - found.logZ).toFixed(4)}. Posterior decoding: ${path(found.posterior)}, probability `
        + `${Math.exp(found.posteriorScore - found.logZ).toFixed(4)}.`
        + (path(found.viterbi) === path(found.posterior) ? " Both agree." : " They part.");
    svg.setAttribute("aria-label", `Lattice of ${words.join(" ")}: ${name}. ${results.textContent}`);
    const head = ["word", ...labels, "Viterbi", "posterior"].map(text => make("th", { scope: "col" }, text));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...words.map((w, i) => {
      const [v, p] = [found.viterbi[i], found.posterior[i]];
      const cells = [...found.pNode[i].map(q => q.toFixed(3)), ...(found.possible ? [labels[v], labels[p]] : ["", ""])];
      return make("tr", found.possible && v !== p ? { class: "apart" } : {}, make("th", { scope: "row" }, w),
        ...cells.map(text => make("td", {}, text)));
    })));
    el.found = found;
  }

  model.on?.("change:model", () => {
    ({ node, edge } = JSON.parse(JSON.stringify(model.get("model"))));
    draw();
  });
  draw();
}

export function mountAll() { // on a page without a kernel
  for (const el of document.querySelectorAll(".crfbook-lattice[data-model]")) {
    const model = { model: JSON.parse(el.dataset.model) };
    el.removeAttribute("data-model");
    render({ el, model: { get: key => model[key], set: (key, value) => { model[key] = value; }, save_changes() {} } });
  }
}

globalThis.crfbookLattice = { infer }; // for tests
export default { render };
