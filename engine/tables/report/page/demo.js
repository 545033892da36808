"use strict";
/* The synthetic benchmark in one dimension, solved in the page.

   Labels y ~ p_train on [0, 10], inputs x = y - eps, eps ~ N(0, noise^2); the regressor is
   p = slope x + intercept. Vanilla and Reweight are least squares, in closed form. GAI, BMC and BNI
   minimise the mean of

       (p - y)^2 / (2 sigma^2) + log E(p),   E(p) = sum_k weight_k N(p; mean_k, var_k + sigma^2)

   with a mixture, the labels themselves or 100 bins as the prior. Its second derivative in p is a
   posterior variance / sigma^4, so the loss is convex and Newton's method finds the minimum. */
const demo = (() => {
  const LOW = 0, HIGH = 10, CENTER = 5;
  const METHODS = ["Vanilla", "Reweight", "GAI", "BMC", "BNI"];
  const GRID = { from: -12, step: 0.1, size: 341 }; // of predictions, for log E

  /* skew 1, 2, 3 are the paper's Low, Moderate, High */
  function labels(family, skew) {
    if (family === "normal") {
      const std = 1.25 - 0.25 * skew;
      return {
        text: `standard deviation ${std.toFixed(2)}`, mean: CENTER, variance: std * std, components: 1,
        density: y => Math.exp(-((y - CENTER) ** 2) / (2 * std * std)) / (std * Math.sqrt(2 * Math.PI)),
        draw: random => CENTER + std * gauss(random),
      };
    }
    const rate = 0.5 + 0.5 * skew;
    return {
      text: `rate ${rate.toFixed(2)}`, mean: 1 / rate, variance: 1 / rate ** 2, components: 64,
      density: y => rate * Math.exp(-rate * y),
      draw: random => -Math.log(1 - random()) / rate,
    };
  }

  /* mulberry32: a seeded generator of numbers in [0, 1) */
  function generator(seed) {
    let state = (seed + 1) * 0x9e3779b9;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  const gauss = random =>
    Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

  /* [{x, y, weight}]: drawn pairs, or for count 0 the population on a grid */
  function pairs(p, noise, count, seed) {
    if (count > 0) {
      const random = generator(seed), made = [];
      while (made.length < count) {
        const y = p.draw(random);
        if (y >= LOW && y <= HIGH) made.push({ x: y - noise * gauss(random), y, weight: 1 / count });
      }
      return made;
    }
    const made = [], rows = 300, nodes = 31;
    for (let k = 0; k < rows; k++) {
      const y = LOW + ((k + 0.5) * (HIGH - LOW)) / rows;
      for (let j = 0; j < nodes; j++) {
        const e = -5 + (10 * j) / (nodes - 1);
        made.push({ x: y - noise * e, y, weight: p.density(y) * Math.exp((-e * e) / 2) });
      }
    }
    const total = made.reduce((sum, pair) => sum + pair.weight, 0);
    for (const pair of made) pair.weight /= total;
    return made;
  }

  function leastSquares(data, weights) {
    let n = 0, x = 0, y = 0, xx = 0, xy = 0;
    data.forEach((d, i) => { n += weights[i]; x += weights[i] * d.x; y += weights[i] * d.y; });
    x /= n; y /= n;
    data.forEach((d, i) => {
      xx += (weights[i] * (d.x - x) ** 2) / n;
      xy += (weights[i] * (d.x - x) * (d.y - y)) / n;
    });
    const slope = xy / xx;
    return { slope, intercept: y - slope * x };
  }

  /* {y: weight} of the labels, sorted; the pairs of a grid share labels */
  function atoms(data) {
    const found = new Map();
    for (const d of data) found.set(d.y, (found.get(d.y) || 0) + d.weight);
    return [...found].map(([mean, weight]) => ({ mean, weight, variance: 0 }))
      .sort((a, b) => a.mean - b.mean);
  }

  /* K equal slices of the sorted labels, each a Gaussian with its slice's mean and variance */
  function mixture(sorted, components) {
    const slices = Array.from({ length: components }, () => ({ weight: 0, mean: 0, variance: 0 }));
    let before = 0;
    for (const atom of sorted) {
      const slice = slices[Math.min(components - 1, Math.floor((before + atom.weight / 2) * components))];
      slice.weight += atom.weight;
      slice.mean += atom.weight * atom.mean;
      slice.variance += atom.weight * atom.mean ** 2;
      before += atom.weight;
    }
    return slices.filter(s => s.weight > 0).map(s => {
      const mean = s.mean / s.weight;
      return { weight: s.weight, mean, variance: Math.max(s.variance / s.weight - mean * mean, 0) };
    });
  }

  function bins(sorted, count = 100) {
    const width = (HIGH - LOW) / count;
    const found = Array.from({ length: count }, (_, k) =>
      ({ mean: LOW + (k + 0.5) * width, weight: 0, variance: 0 }));
    for (const a of sorted) {
      found[Math.min(count - 1, Math.floor((a.mean - LOW) / width))].weight += a.weight;
    }
    return found.filter(bin => bin.weight > 0);
  }

  function prior(method, data, p) {
    const sorted = atoms(data);
    return method === "BMC" ? sorted : method === "BNI" ? bins(sorted) : mixture(sorted, p.components);
  }

  /* log E and its first and second derivative, tabulated over predictions */
  function evidence(parts, sigma) {
    const table = { value: [], first: [], second: [] };
    const spreads = parts.map(k => k.variance + sigma * sigma);
    const starts = parts.map((k, j) => Math.log(k.weight) - Math.log(spreads[j]) / 2);
    const scores = new Float64Array(parts.length);
    for (let i = 0; i < GRID.size; i++) {
      const p = GRID.from + i * GRID.step;
      let top = -Infinity;
      for (let j = 0; j < parts.length; j++) {
        scores[j] = starts[j] - (p - parts[j].mean) ** 2 / (2 * spreads[j]);
        if (scores[j] > top) top = scores[j];
      }
      let sum = 0, first = 0, second = 0;
      for (let j = 0; j < parts.length; j++) {
        const r = Math.exp(scores[j] - top), pull = (parts[j].mean - p) / spreads[j];
        sum += r; first += r * pull; second += r * (pull * pull - 1 / spreads[j]);
      }
      table.value.push(top + Math.log(sum));
      table.first.push(first / sum);
      table.second.push(second / sum - (first / sum) ** 2);
    }
    return table;
  }

  function balanced(data, table, sigma, start) {
    const precision = 1 / (sigma * sigma);
    const at = p => {
      const place = Math.min(Math.max((p - GRID.from) / GRID.step, 0), GRID.size - 1.001);
      const i = Math.floor(place);
      return [i, place - i];
    };
    const loss = (slope, intercept) => data.reduce((sum, d) => {
      const p = slope * d.x + intercept, [i, t] = at(p), h = GRID.step;
      const e = table.value[i] * (1 + 2 * t) * (1 - t) ** 2 + table.value[i + 1] * t * t * (3 - 2 * t)
        + h * t * (1 - t) * (table.first[i] * (1 - t) - table.first[i + 1] * t); // cubic Hermite
      return sum + d.weight * (((p - d.y) ** 2 * precision) / 2 + e);
    }, 0);
    let { slope, intercept } = start, now = loss(slope, intercept);
    for (let round = 0; round < 60; round++) {
      let gs = 0, gi = 0, ss = 1e-12, si = 0, ii = 1e-12;
      for (const d of data) {
        const p = slope * d.x + intercept, [i, t] = at(p);
        const g = d.weight * ((p - d.y) * precision + table.first[i] * (1 - t) + table.first[i + 1] * t);
        const curve = precision + table.second[i] * (1 - t) + table.second[i + 1] * t;
        const h = d.weight * Math.max(curve, 1e-9);
        gs += g * d.x; gi += g; ss += h * d.x * d.x; si += h * d.x; ii += h;
      }
      const det = ss * ii - si * si;
      const ds = (ii * gs - si * gi) / det, di = (ss * gi - si * gs) / det;
      let step = 1, next = loss(slope - ds, intercept - di);
      while (!(next <= now + 1e-12) && step > 1e-3) {
        step /= 2;
        next = loss(slope - step * ds, intercept - step * di);
      }
      slope -= step * ds; intercept -= step * di;
      const moved = Math.abs(step * ds) + Math.abs(step * di);
      now = next;
      if (moved < 1e-6 || step <= 1e-3) break;
    }
    return { slope, intercept };
  }

  /* {method: {slope, intercept, mse}}; settings: family, skew, noise, ratio (sigma / noise), count, seed */
  function solve(settings) {
    const p = labels(settings.family, settings.skew);
    const data = pairs(p, settings.noise, settings.count, settings.seed);
    const sigma = settings.noise * settings.ratio, lines = {};
    lines.Vanilla = leastSquares(data, data.map(d => d.weight));
    lines.Reweight = leastSquares(data, data.map(d => d.weight / p.density(d.y)));
    for (const method of ["GAI", "BMC", "BNI"]) {
      lines[method] = balanced(data, evidence(prior(method, data, p), sigma), sigma, lines.Vanilla);
    }
    for (const method of METHODS) lines[method].mse = testError(lines[method]);
    return { lines, data, labels: p };
  }

  /* E[(slope y + intercept - y)^2] for y uniform on [0, 10] */
  function testError({ slope, intercept }) {
    const a = slope - 1;
    return (a * a * 100) / 3 + 10 * a * intercept + intercept ** 2;
  }

  /* the population's least-squares error, by hand: shrinking by v / (v + noise^2) to the mean */
  function closedForm(family, skew, noise) {
    const { mean, variance } = labels(family, skew);
    return ((CENTER - mean) ** 2 + 100 / 12) / (variance / noise ** 2 + 1) ** 2;
  }

  return { METHODS, solve, closedForm, labels, pairs };
})();

if (typeof module !== "undefined") module.exports = demo;
