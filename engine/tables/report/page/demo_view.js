"use strict";
/* The demo's controls, drawing and numbers. */
(() => {
  const form = document.getElementById("demo-controls");
  const svg = document.getElementById("demo-plot");
  const body = document.querySelector("#demo-lines tbody");
  const X = { from: -3, to: 13, left: 44, right: 430 }, Y = { from: -2, to: 12, top: 12, bottom: 344 };
  const PANEL = { left: 462, right: 628 };
  const px = x => X.left + ((x - X.from) / (X.to - X.from)) * (X.right - X.left);
  const py = y => Y.bottom - ((y - Y.from) / (Y.to - Y.from)) * (Y.bottom - Y.top);

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function settings() {
    const get = name => form.elements[name].value;
    return {
      family: get("family"), method: get("method"), skew: +get("skew"), noise: +get("noise"),
      ratio: +get("ratio"), count: +get("count"), seed: +get("seed"),
    };
  }

  function say(chosen, p) {
    const near = ["", "Low", "Moderate", "High"][chosen.skew] || "";
    form.querySelector("[data-of=skew]").textContent = p.text + (near ? ` (the paper's ${near})` : "");
    form.querySelector("[data-of=noise]").textContent = chosen.noise.toFixed(2);
    form.querySelector("[data-of=ratio]").textContent =
      `${chosen.ratio.toFixed(2)} × noise = ${(chosen.ratio * chosen.noise).toFixed(2)}`;
    form.querySelector("[data-of=seed]").textContent = chosen.seed;
  }

  function line(fit, attributes) {
    const ends = [X.from, X.to].map(x => [px(x), py(fit.slope * x + fit.intercept)]);
    return element("line", { x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1], ...attributes });
  }

  /* densities over y, drawn to the right of the plot: training labels, test labels, predictions */
  function marginals(p, fit, method) {
    const group = element("g", {});
    let top = 0.35;
    const points = [];
    for (let y = 0; y <= 10.001; y += 0.1) {
      points.push([y, p.density(y)]);
      top = Math.max(top, p.density(y));
    }
    const reach = d => PANEL.left + (Math.sqrt(d / top)) * (PANEL.right - PANEL.left);
    const area = points.map(([y, d]) => `${reach(d)},${py(y)}`).join(" ");
    group.append(element("polygon",
      { points: `${PANEL.left},${py(0)} ${area} ${PANEL.left},${py(10)}`, class: "train" }));
    const box = (low, high, attributes) => {
      const density = 1 / Math.max(high - low, 0.05);
      const clip = y => Math.min(Math.max(y, Y.from), Y.to);
      return element("path", { d: `M${PANEL.left},${py(clip(low))} H${reach(Math.min(density, top))} ` +
        `V${py(clip(high))} H${PANEL.left}`, fill: "none", ...attributes });
    };
    group.append(box(0, 10, { class: "truth" }));
    const ends = [fit.intercept, 10 * fit.slope + fit.intercept].sort((a, b) => a - b);
    group.append(box(ends[0], ends[1], { class: `fit ${method}`, id: "demo-marginal" }));
    return group;
  }

  function axes() {
    const group = element("g", { class: "axes" });
    for (let v = 0; v <= 10; v += 5) {
      group.append(element("line", { x1: X.left, x2: X.right, y1: py(v), y2: py(v) }));
      group.append(element("text", { x: X.left - 8, y: py(v) + 4, "text-anchor": "end" }, v));
      group.append(element("text", { x: px(v), y: Y.bottom + 18, "text-anchor": "middle" }, v));
    }
    group.append(element("text", { x: (X.left + X.right) / 2, y: Y.bottom + 38, "text-anchor": "middle" }, "input x"));
    group.append(element("text", { x: 14, y: py(5), transform: `rotate(-90 14 ${py(5)})`, "text-anchor": "middle" }, "label y"));
    group.append(element("text", { x: (PANEL.left + PANEL.right) / 2, y: Y.bottom + 18, "text-anchor": "middle" }, "√ density"));
    group.append(element("text", { x: (PANEL.left + PANEL.right) / 2, y: Y.bottom + 38, "text-anchor": "middle" }, "marginal of y"));
    return group;
  }

  function draw() {
    const chosen = settings();
    const { lines, data, labels } = demo.solve(chosen);
    const shown = chosen.count ? data.slice(0, 400) : demo.pairs(labels, chosen.noise, 400, chosen.seed);
    say(chosen, labels);
    const clip = element("clipPath", { id: "demo-clip" });
    clip.append(element("rect", { x: X.left, y: Y.top, width: X.right - X.left, height: Y.bottom - Y.top }));
    const inside = element("g", { "clip-path": "url(#demo-clip)" });
    for (const d of shown) inside.append(element("circle", { cx: px(d.x), cy: py(d.y), r: 2 }));
    for (const method of demo.METHODS) {
      if (method !== chosen.method) inside.append(line(lines[method], { class: `other ${method}` }));
    }
    inside.append(line({ slope: 1, intercept: 0 }, { class: "truth" }));
    inside.append(line(lines[chosen.method], { class: `fit ${chosen.method}`, id: "demo-line" }));
    svg.replaceChildren(clip, axes(), inside, marginals(labels, lines[chosen.method], chosen.method));
    body.replaceChildren(...demo.METHODS.map(method => {
      const row = document.createElement("tr");
      row.className = method === chosen.method ? "chosen" : "";
      const cells = [method, lines[method].slope.toFixed(3), lines[method].intercept.toFixed(3),
        lines[method].mse.toFixed(3)];
      for (const text of cells) row.append(Object.assign(document.createElement("td"), { textContent: text }));
      row.firstChild.prepend(Object.assign(document.createElement("i"), { className: `key ${method}` }));
      row.addEventListener("click", () => {
        form.elements.method.value = method;
        draw();
      });
      return row;
    }));
    const closed = demo.closedForm(chosen.family, chosen.skew, chosen.noise);
    document.getElementById("demo-closed").textContent = closed.toFixed(3);
  }

  let waiting = false;
  form.addEventListener("input", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  });
  form.addEventListener("submit", event => event.preventDefault());
  draw();
})();
