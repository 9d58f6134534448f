// Sliders over the bounds, the chart, and the ledger's filter. `makeTheory` is in theory.js.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const theory = makeTheory(data.tables);
  const at = (id) => document.getElementById(id);
  const NAMES = ["items", "d", "heads", "budget"];
  const START = { items: 96, d: 16, heads: 4, budget: 23 };

  const shown = (value) => {
    if (!Number.isFinite(value)) return "∞";
    return value.toLocaleString("en", value < 100 ? { minimumFractionDigits: 1, maximumFractionDigits: 1 } : { maximumFractionDigits: 0 });
  };

  for (const name of NAMES) {
    const input = at(name);
    input.min = 0;
    input.max = data[name].length - 1;
    const start = data[name].indexOf(START[name]);
    input.value = start >= 0 ? start : data[name].findIndex((value) => value >= START[name]);
    input.addEventListener("input", () => draw());
  }
  at("sliders").addEventListener("submit", (event) => event.preventDefault());

  const HEIGHT = 360, LEFT = 62, RIGHT = 12, TOP = 14, BOTTOM = 42;
  let WIDTH = 640; // of the place that the chart has, so that its letters keep their size
  const MOST = data.heads[data.heads.length - 1];
  const [LOW, HIGH] = [1, 32768];
  const clamp = (value) => Math.min(Math.max(value, LOW), HIGH);
  const x = (heads) => LEFT + (Math.log(heads) / Math.log(MOST)) * (WIDTH - LEFT - RIGHT);
  const y = (budget) => HEIGHT - BOTTOM - (Math.log(clamp(budget) / LOW) / Math.log(HIGH / LOW)) * (HEIGHT - TOP - BOTTOM);

  const line = (points, name) => {
    const path = points.map(([heads, value]) => `${x(heads).toFixed(1)},${y(value).toFixed(1)}`);
    return path.length > 1 ? `<polyline class="${name}" points="${path.join(" ")}"/>` : "";
  };

  const chart = (items, d, heads, budget) => {
    WIDTH = Math.max(at("chart").clientWidth, 280);
    const rows = data.heads.map((count) => [count, theory.bounds(items, d, count)]);
    const curve = (name) => rows.filter(([, b]) => Number.isFinite(b[name]) && b[name] <= HIGH).map(([count, b]) => [count, b[name]]);
    const top = rows.map(([count, b]) => `${x(count).toFixed(1)},${y(Number.isFinite(b.theorem) ? b.theorem : HIGH).toFixed(1)}`);
    const bottom = y(LOW).toFixed(1);
    let out = `<polygon class="area" points="${x(1)},${bottom} ${top.join(" ")} ${x(MOST)},${bottom}"/>`;
    for (const value of [1, 2, 4, 8, 16, 32, 64, 128]) {
      out += `<text x="${x(value)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${value}</text>`;
    }
    for (const value of [1, 8, 64, 512, 4096, 32768]) {
      out += `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"/>`;
      out += `<text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${value.toLocaleString("en")}</text>`;
    }
    out += `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 6}" text-anchor="middle">heads h</text>`;
    out += `<text x="12" y="${(HEIGHT - BOTTOM) / 2}" text-anchor="middle" transform="rotate(-90 12 ${(HEIGHT - BOTTOM) / 2})">budget D_K</text>`;
    out += line(curve("partition"), "partition") + line(curve("parameters"), "parameters");
    out += `<line class="now" x1="${x(heads)}" x2="${x(heads)}" y1="${TOP}" y2="${bottom}"/>`;
    out += `<line class="now" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(budget)}" y2="${y(budget)}"/>`;
    out += `<circle class="dot" cx="${x(heads)}" cy="${y(budget)}" r="6"/>`;
    const title = `Budget needed against the number of heads, ${items} items in ${d} dimensions`;
    at("chart").innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}">${out}</svg>`;
  };

  const sentence = (b, heads, budget) => {
    const size = `${shown(budget / heads)} dimensions a head: `;
    if (budget < heads) return `${size}fewer than one; no such layer.`;
    if (budget < b.theorem) return `${size}excluded by a theorem.`;
    if (budget >= b.parameters) return `${size}enough, also for plain joint descent by its empirical law.`;
    if (budget >= b.partition) return `${size}enough by the prediction; plain joint descent is expected to need ${shown(b.parameters)}.`;
    return `${size}less than the prediction asks for; heads that choose their edges may still do.`;
  };

  const draw = () => {
    const [items, d, heads, budget] = NAMES.map((name) => data[name][at(name).value]);
    NAMES.forEach((name, index) => { at(`${name}-value`).textContent = [items, d, heads, budget][index].toLocaleString("en"); });
    const b = theory.bounds(items, d, heads);
    for (const name of ["counting", "warren", "cap", "partition", "parameters"]) {
      at(name).textContent = shown(b[name]);
      at(name).dataset.value = b[name];
    }
    at("verdict").textContent = sentence(b, heads, budget);
    chart(items, d, heads, budget);
  };

  // The largest relative difference from the values that Python put into the page.
  const disagreement = () => {
    let worst = 0;
    for (const point of data.points) {
      const b = theory.bounds(point.items, point.d, point.heads);
      for (const name of Object.keys(b)) {
        const expected = point[name] === null ? Infinity : point[name];
        if (b[name] !== expected) worst = Math.max(worst, Math.abs(b[name] - expected) / Math.abs(expected)) || Infinity;
      }
    }
    return worst;
  };
  const worst = disagreement();
  at("agreement").dataset.worst = worst;
  at("agreement").textContent = worst < 1e-9
    ? `Computed in this page; at ${data.points.length} points that it carries it agrees with the Python functions (relative difference below 1e-9).`
    : `This browser's values differ from the Python functions by up to ${worst}: do not trust them.`;

  for (const button of document.querySelectorAll("[data-filter]")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll("[data-filter]")) other.setAttribute("aria-pressed", String(other === button));
      for (const card of document.querySelectorAll(".claim")) {
        card.hidden = button.dataset.filter !== "" && card.dataset.verdict !== button.dataset.filter;
      }
    });
  }
  // A link to a figure in folded parts unfolds them.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let box = target && target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  if (matchMedia("(max-width: 63.99rem)").matches) document.querySelector("nav details").open = false;
  addEventListener("resize", draw);
  draw();
  unfold();
})();
