// The curves of a report: drawn from the JSON in the page, without any library and without the network.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { hidden: new Set(), logX: false, logY: false, bands: true, bounds: true, measure: "regret" };
  const charts = [];

  // ------------------------------------------------------------------ elements; text only ever through textContent

  const SVG = "http://www.w3.org/2000/svg";
  function svg(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  }
  function html(name, text, parent, className) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    if (parent) parent.append(element);
    return element;
  }
  const mapColumns = (series, change) =>
    Object.fromEntries(["x", "y", "low", "high"].map((column) => [column, change(series[column])]));
  const colourClass = (learner) => "l" + data.styles[learner].colour;
  function dash(learner, width) {
    return data.styles[learner].dashes.map((length) => length * width).join(" ") || "none";
  }

  // -------------------------------------------------------------------------------------------- numbers and ticks

  function format(value) {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace(/\.?0+e/, "e");
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 3, maximumFractionDigits: 3 });
  }
  // With beyond = 1 the last tick is at or above high, with 0 at or below it.
  function linearTicks(low, high, count, beyond) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
    const ticks = [];
    const end = high + (beyond ? 0.999 : 1e-9) * step;
    for (let i = Math.ceil(low / step - 1e-9); i * step <= end; i++) ticks.push(i * step + 0); // + 0: no minus zero
    return ticks;
  }
  function logTicks(low, high, count) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const stride = Math.max(1, Math.ceil((last - first) / count));
    const digits = last - first <= 2 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = first; power <= last; power += stride)
      for (const digit of digits) ticks.push(digit * 10 ** power);
    const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    return inside.length < 3 ? linearTicks(low, high, 4, 0) : inside;
  }
  function scale(low, high, from, to, log) {
    const f = log ? Math.log : (value) => value;
    return (value) => from + ((f(value) - f(low)) / (f(high) - f(low))) * (to - from);
  }

  // --------------------------------------------------------------------------------------------------- one chart

  // source() returns {series: [{learner, x, y, low, high}], step, logX, logY, xLabel, yLabel, note}.
  class Chart {
    constructor(figure, source) {
      this.figure = figure;
      this.source = source;
      this.plot = figure.querySelector(".plot");
      this.note = figure.querySelector(".note");
      this.above = html("p", undefined, figure, "soft above");
      this.tip = html("div", undefined, figure, "tip");
      this.tip.hidden = true;
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerdown", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.leave());
      this.plot.addEventListener("blur", () => this.leave());
      this.plot.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => {
        if (this.plot.clientWidth !== this.width) this.draw();
      }).observe(this.plot);
    }

    draw() {
      const width = (this.width = this.plot.clientWidth), height = this.plot.clientHeight;
      if (!width) return; // not laid out yet: the observer calls again
      const content = this.source();
      this.leave();
      this.plot.replaceChildren();
      this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const shown = [];
      let left_out = 0;
      for (const series of content.series) {
        if (series.of && !state.bounds) continue;
        if (state.hidden.has(series.learner) || state.hidden.has(series.of)) continue;
        const keep = series.x.map(
          (x, i) => series.y[i] !== null && (!content.logX || x > 0) && (!content.logY || series.y[i] > content.tiny)
        );
        if (!keep.some(Boolean)) { left_out += 1; continue; }
        const pick = (values) => values.filter((_, i) => keep[i]);
        shown.push({ learner: series.learner, of: series.of, ...mapColumns(series, pick) });
      }
      this.note.textContent = left_out ? ` ${left_out} without positive values not shown` : "";
      this.content = content;
      this.shown = shown;
      this.above.textContent = "";
      this.xs = [...new Set(shown.flatMap((series) => series.x))].sort((a, b) => a - b);
      if (!shown.length) return;

      let [x0, x1] = content.xRange || [content.logX ? this.xs[0] : 0, this.xs[this.xs.length - 1]];
      // The curves fill the picture: bands may add half as much on either side, bounds nothing.
      const curves_only = shown.filter((series) => !series.of), fitted = curves_only.length ? curves_only : shown;
      const values = (columns) => fitted.flatMap((series) => columns.flatMap((column) => series[column]));
      const means = values(["y"]), bands = state.bands ? values(["low", "high"]).filter((y) => y !== null) : [];
      let y0, y1;
      if (content.logY) {
        [y0, y1] = [Math.min(...means), Math.max(...means)];
        y1 = Math.min(Math.max(y1, ...bands), y1 * Math.sqrt(Math.max(y1 / y0, 2)));
      } else if (content.yRange) {
        [y0, y1] = content.yRange;
      } else {
        [y0, y1] = [Math.min(0, ...means), Math.max(0, ...means)];
        const spare = (y1 - y0) / 2;
        [y0, y1] = [Math.max(Math.min(y0, ...bands), y0 - spare), Math.min(Math.max(y1, ...bands), y1 + spare)];
      }
      if (x0 === x1) x1 = content.logX ? x0 * 10 : x0 + 1;
      if (y0 === y1) y1 = content.logY ? y0 * 10 : y0 + 1;
      const yTicks = content.logY ? logTicks(y0, y1, 6) : linearTicks(y0, y1, 5, 1);
      if (!content.logY) y1 = Math.max(y1, yTicks[yTicks.length - 1]);
      this.tellAbove(y1);
      const longest = Math.max(...yTicks.map((tick) => format(tick).length), 3);
      const margin = { left: 14 + 7 * longest, right: 14, top: 28, bottom: 40 };
      const right = width - margin.right, bottom = height - margin.bottom;
      const x = (this.x = scale(x0, x1, margin.left, right, content.logX));
      const y = (this.y = scale(y0, y1, bottom, margin.top, content.logY));

      const axes = svg("g", { class: "axes" }, this.plot);
      for (const tick of yTicks) {
        svg("line", { class: "grid", x1: margin.left, x2: right, y1: y(tick), y2: y(tick) }, axes);
        const text = svg("text", { class: "y-tick", x: margin.left - 6, y: y(tick) + 4, "text-anchor": "end" }, axes);
        text.textContent = format(tick);
      }
      const room = Math.max(2, Math.floor((right - margin.left) / 70));
      let free = -Infinity;
      for (const tick of content.logX ? logTicks(x0, x1, room) : linearTicks(x0, x1, room, 0)) {
        const label = format(tick), half = 3.5 * label.length;
        svg("line", { class: "frame", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }, axes);
        if (x(tick) - half < free) continue;
        free = x(tick) + half + 6;
        const anchor = x(tick) + half > width ? "end" : "middle";
        svg("text", { class: "x-tick", x: x(tick), y: bottom + 17, "text-anchor": anchor }, axes).textContent = label;
      }
      svg("line", { class: "frame", x1: margin.left, x2: right, y1: bottom, y2: bottom }, axes);
      const middle = { x: (margin.left + right) / 2, y: height - 6, "text-anchor": "middle" };
      svg("text", middle, axes).textContent = content.xLabel;
      svg("text", { x: 4, y: 12 }, axes).textContent = content.yLabel;

      const clip = "clip-" + charts.indexOf(this);
      const area = svg("clipPath", { id: clip }, this.plot);
      const room_inside = { width: right - margin.left + 2, height: bottom - margin.top + 4 };
      svg("rect", { x: margin.left, y: margin.top - 3, ...room_inside }, area);
      const curves = svg("g", { class: "curves", "clip-path": `url(#${clip})` }, this.plot);
      const inside = (value) => Math.min(1e5, Math.max(-1e5, content.logY && value <= 0 ? bottom + 50 : y(value)));
      const path = (series, values) => {
        const points = series.x.map((value, i) => [x(value), inside(values[i])]);
        if (content.step) return `M${x(x0)},${bottom}` + points.map(([a, b]) => `H${a}V${b}`).join("") + `H${right}`;
        return "M" + points.join("L");
      };
      for (const series of this.shown) {
        const group = svg("g", { class: colourClass(series.learner), "data-learner": series.learner }, curves);
        if (state.bands && !content.step && series.low.every((value) => value !== null)) {
          const low = path(series, series.low), high = path(series, series.high);
          const back = low.slice(1).split("L").reverse().join("L");
          svg("path", { class: "band", d: `${high}L${back}Z` }, group);
          svg("path", { class: "edge", d: low }, group);
          svg("path", { class: "edge", d: high }, group);
        }
        if (series.x.length === 1) // a line of one point cannot be seen
          svg("circle", { class: "dot", cx: x(series.x[0]), cy: inside(series.y[0]), r: 5 }, group);
        svg("path", { class: "curve", d: path(series, series.y), "stroke-dasharray": dash(series.learner, 2) }, group);
      }
      this.marks = svg("g", { class: "marks" }, this.plot);
      this.bounds = { top: margin.top, bottom, left: margin.left, right, width };
    }

    // Bounds that are nowhere in the picture are not drawn; a sentence names all that end above it.
    tellAbove(top) {
      const last = (values) => values[values.length - 1], round = (value) => format(Number(value.toPrecision(3)));
      const high = this.shown.filter((series) => series.of && last(series.y) > top);
      this.shown = this.shown.filter((series) => !series.of || series.y.some((y) => y <= top));
      const words = high.map((series) => {
        const times = top > 0 ? `, ${round(last(series.y) / top)} times its top` : "";
        return `${series.learner} (${round(last(series.y))} after ${format(last(series.x))} episodes${times})`;
      });
      if (words.length) this.above.textContent = `Above the picture: ${words.join("; ")}.`;
    }

    // ------------------------------------------------------------------------------ values under the pointer

    valueAt(series, value) {
      let index = -1;
      for (let i = 0; i < series.x.length && series.x[i] <= value; i++) index = i;
      if (index < 0) return this.content.step ? { y: 0, low: null } : null;
      if (!this.content.step && series.x[index] !== value) return null;
      return { y: series.y[index], low: series.low[index], high: series.high[index] };
    }
    point(event) {
      if (!this.shown || !this.shown.length) return;
      const place = event.clientX - this.plot.getBoundingClientRect().left;
      let best = 0;
      this.xs.forEach((value, i) => {
        if (Math.abs(this.x(value) - place) < Math.abs(this.x(this.xs[best]) - place)) best = i;
      });
      this.show(best);
    }
    key(event) {
      if (!this.shown || !this.shown.length) return;
      const last = this.xs.length - 1, now = this.at === undefined ? last : this.at;
      const moves = { ArrowLeft: now - (this.at === undefined ? 0 : 1), ArrowRight: now + 1, Home: 0, End: last };
      if (event.key === "Escape") return this.leave();
      if (!(event.key in moves)) return;
      event.preventDefault();
      const words = this.show(Math.min(last, Math.max(0, moves[event.key])));
      document.getElementById("live").textContent = words;
    }
    show(index) {
      this.at = index;
      const value = this.xs[index], { top, bottom, left, right, width } = this.bounds;
      this.marks.replaceChildren();
      this.tip.replaceChildren();
      svg("line", { class: "cursor", x1: this.x(value), x2: this.x(value), y1: top, y2: bottom }, this.marks);
      const heading = `${format(value)} ${this.content.unit}`;
      html("strong", heading, this.tip);
      const rows = this.shown.map((series) => ({ learner: series.learner, at: this.valueAt(series, value) }));
      const present = rows.filter((row) => row.at).sort((a, b) => b.at.y - a.at.y);
      const table = html("table", undefined, this.tip);
      const words = [heading];
      for (const { learner, at } of present) {
        const height = this.y(at.y);
        if (height >= top - 4)
          svg("circle", { class: `dot ${colourClass(learner)}`, cx: this.x(value), cy: height, r: 4 }, this.marks);
        const row = html("tr", undefined, table);
        html("td", undefined, row).append(swatch(learner));
        html("td", learner, row);
        let text = format(at.y);
        if (at.low !== null)
          text += this.content.step
            ? ` (${format(at.low)} to ${format(at.high)})`
            : ` ± ${format((at.high - at.low) / 2)}`;
        html("td", text, row);
        words.push(`${learner}: ${text}`);
      }
      this.tip.hidden = false;
      this.tip.style.left = "0"; // measured where there is room
      const room = this.x(value) < (left + right) / 2 ? this.x(value) + 12 : this.x(value) - 12 - this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(0, Math.min(width - this.tip.offsetWidth, room))}px`;
      const above = this.plot.getBoundingClientRect().top - this.figure.getBoundingClientRect().top;
      this.tip.style.top = `${above + top}px`;
      return words.join("; ");
    }
    leave() {
      this.at = undefined;
      this.tip.hidden = true;
      if (this.marks) this.marks.replaceChildren();
    }
  }

  function swatch(learner) {
    const picture = svg("svg", { class: `swatch ${colourClass(learner)}`, viewBox: "0 0 36 12", "aria-hidden": "true" });
    svg("path", { class: "curve", d: "M0,6H36", "stroke-dasharray": dash(learner, 2) }, picture);
    return picture;
  }

  // -------------------------------------------------------------------------------------------- what is drawn

  function curvesOf(problem, key) {
    const measure = data.measures.find((candidate) => candidate.key === key);
    const series = (problem.curves[measure.column] || []).map((curve) => {
      if (!measure.over_sqrt) return curve;
      const divide = (values) => values.map((value, i) => (value === null ? null : value / Math.sqrt(curve.x[i])));
      return { ...curve, ...mapColumns(curve, divide), x: curve.x };
    });
    return {
      series, logX: state.logX, logY: state.logY, tiny: 1e-9,
      unit: "episodes", xLabel: "episodes", yLabel: measure.label,
    };
  }
  data.problems.forEach((problem, i) => {
    charts.push(new Chart(document.getElementById(`problem-${i}`), () => curvesOf(problem, state.measure)));
    const loss = document.getElementById(`loss-${i}`);
    if (loss) charts.push(new Chart(loss, () => curvesOf(problem, "mean_loss")));
    problem.trust.forEach((series, j) => {
      const source = () => ({
        series, logX: state.logX, logY: false, tiny: 0, yRange: [0, 1], unit: "episodes", xLabel: "episodes", yLabel: "probability",
      });
      charts.push(new Chart(document.getElementById(`trust-${i}-${j}`), source));
    });
  });
  if (data.profile) {
    const { reference, series, range } = data.profile;
    const source = () => ({
      series, step: true, logX: false, logY: false, xRange: range, yRange: [0, 1], unit: `× ${reference}`,
      xLabel: `regret as a multiple of that of ${reference}`, yLabel: "share of runs at or below",
    });
    charts.push(new Chart(document.getElementById("profile"), source));
  }
  const redraw = () => charts.forEach((chart) => chart.draw());
  redraw();

  // ------------------------------------------------------------------------------------------------- controls

  const controls = document.getElementById("controls") || document.createElement("div"); // none without results
  const select = html("select", undefined, controls);
  select.setAttribute("aria-label", "what the curves show");
  for (const measure of data.measures) html("option", measure.label, select).value = measure.key;
  select.addEventListener("change", () => { state.measure = select.value; redraw(); });
  for (const [option, label] of [["logX", "log episodes"], ["logY", "log values"], ["bands", "bands"], ["bounds", "proved bounds"]]) {
    if (option === "bounds" && !Object.keys(data.styles).some((name) => name.startsWith("proved bound of "))) continue;
    const button = html("button", label, controls, "option");
    button.type = "button";
    button.id = option;
    button.setAttribute("aria-pressed", String(state[option]));
    button.addEventListener("click", () => {
      state[option] = !state[option];
      button.setAttribute("aria-pressed", String(state[option]));
      redraw();
    });
  }
  const experts = document.getElementById("experts") || document.createElement("div");
  for (const learner of [...data.learners, ...data.experts]) {
    const button = html("button", undefined, data.experts.includes(learner) ? experts : controls, "learner");
    button.type = "button";
    button.dataset.learner = learner;
    button.append(swatch(learner), document.createTextNode(learner));
    button.setAttribute("aria-pressed", "true");
    button.title = "show or hide";
    button.addEventListener("click", () => {
      const hide = !state.hidden.has(learner);
      if (hide) state.hidden.add(learner);
      else state.hidden.delete(learner);
      button.setAttribute("aria-pressed", String(!hide));
      redraw();
    });
  }

  // Light or dark: as the reader's system says, until the button is pressed.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement, theme = document.getElementById("theme");
  let chosen = null;
  function paint() {
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    theme.textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
  }
  dark.addEventListener("change", paint);
  theme.addEventListener("click", () => { chosen = root.dataset.theme === "dark" ? "light" : "dark"; paint(); });
  paint();
})();
