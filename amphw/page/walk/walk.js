"use strict";
(() => {
  const data = JSON.parse(document.getElementById("walk-data").textContent);
  const { nodes, frames, instances } = data;
  const KINDS = ["forward", "backward", "infer"], NAMES = ["forward", "backward", "inference"];
  const LANE = 34, BOX = 13, AXIS = 26, LEAST = 4, ALL = 600;
  const at = (id) => document.getElementById("walk-" + id);
  const svg = at("chart"), which = at("which");
  const state = { order: [], place: 0, step: 0, zoom: 1, timer: null };
  let view = null; // of the instance that is shown: its steps, lanes and scale

  // --- what is known of an instance ------------------------------------------------------------------------

  const timed = (of) => of.frame.every((f) => frames.start[f] !== null);
  const ends = (f) => frames.start[f] + frames.took[f];
  const named = (node) => nodes[node][0] + (nodes[node][1] ? ` · ${nodes[node][1]}` : "");
  const span = (of) => timed(of) ? Math.max(...of.frame.map(ends)) - Math.min(...of.frame.map((f) => frames.start[f]))
    : of.frame.length;

  function us(tenths) {
    const v = tenths / 10;
    return v >= 1e6 ? (v / 1e6).toFixed(2) + " s" : v >= 1e3 ? (v / 1e3).toFixed(2) + " ms" : v.toFixed(1) + " µs";
  }

  /** The steps of an instance, each with what there is to say of it. */
  function steps(of) {
    const known = timed(of), began = known ? Math.min(...of.frame.map((f) => frames.start[f])) : 0;
    const forward = new Map(), found = [];
    of.frame.forEach((f, k) => {
      const node = frames.node[f], kind = frames.kind[f], fields = nodes[node][2], values = of.state[k];
      const shown = values.map((v, i) => `${fields[i] || "?"} = ${v}`).join(", ");
      const key = node + ":" + values.join(",");
      if (kind === 0) forward.set(key, k);
      const from = of.from[k].map((back) => k - back);
      const last = from.length && known ? Math.max(...from.map((o) => ends(of.frame[o]))) : null;
      found.push({
        k, f, node, kind, shown, from, to: [], version: frames.version[f], turn: forward.get(key),
        start: known ? frames.start[f] - began : null, took: frames.took[f],
        waited: last === null ? null : Math.max(0, frames.start[f] - last),
      });
    });
    for (const each of found) for (const origin of each.from) found[origin].to.push(each.k);
    for (const each of found) {
      if (each.kind === 1 && each.turn !== undefined) each.behind = each.version - found[each.turn].version;
    }
    return found;
  }

  // --- drawing ---------------------------------------------------------------------------------------------

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function draw() {
    const of = instances[state.order[state.place]], found = steps(of);
    const known = timed(of), byTime = at("axis").value === "time" && known;
    const lanes = [...new Set(found.map((each) => each.node))];
    const room = at("scroll").clientWidth || 800, narrow = room < 600;
    const left = narrow ? 10 : Math.min(190, 16 + 7.2 * Math.max(...lanes.map((n) => named(n).length)));
    const total = byTime ? Math.max(span(of), 1) : found.length;
    const width = Math.max(room, left + 20 + (room - left - 20) * state.zoom);
    const across = (width - left - 20) / total;
    const x = (each) => left + across * (byTime ? each.start : each.k);
    const w = (each) => Math.max(LEAST, across * (byTime ? each.took : 0.8));
    const lane = narrow ? LANE + 14 : LANE, height = lanes.length * lane + AXIS;
    const middle = (each) => lanes.indexOf(each.node) * lane + lane / 2 + (narrow ? 8 : 0);
    const y = (each) => middle(each) + (each.kind === 1 ? 1 : -BOX - 1);
    const parts = document.createDocumentFragment();
    lanes.forEach((node, k) => {
      if (k % 2) parts.append(element("rect", { x: 0, y: k * lane, width, height: lane, class: "lane odd" }));
      const place = narrow ? { x: 4, y: k * lane + 13 } : { x: left - 8, y: k * lane + lane / 2 + 4, "text-anchor": "end" };
      parts.append(element("text", place, named(node)));
    });
    for (const [where, label] of ticks(byTime, total, across, left)) {
      parts.append(element("line", { x1: where, x2: where, y1: 0, y2: height - AXIS, class: "lane" }));
      const side = where < 24 ? "start" : where > width - 24 ? "end" : "middle";
      parts.append(element("text", { x: where, y: height - 8, class: "soft", "text-anchor": side }, label));
    }
    const paths = [];
    for (const each of found) {
      for (const origin of each.from) {
        const by = found[origin], x0 = x(by) + w(by), y0 = y(by) + BOX / 2, x1 = x(each), y1 = y(each) + BOX / 2;
        const bend = Math.max(8, Math.abs(x1 - x0) / 2);
        const path = element("path", { d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}` });
        paths.push([path, origin, each.k]);
        parts.append(path);
      }
    }
    const boxes = found.map((each) => {
      const box = element("rect", { x: x(each), y: y(each), width: w(each), height: BOX, rx: 2, "data-step": each.k,
        class: KINDS[each.kind] });
      box.append(element("title", {}, `${nodes[each.node][0]} ${NAMES[each.kind]} ${each.shown}`));
      parts.append(box);
      return box;
    });
    svg.replaceChildren(parts);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    view = { of, found, boxes, paths, x };
    at("axis").querySelector("option").disabled = !known;
    listed(found);
    about(of, found);
    choose(Math.min(state.step, found.length - 1));
  }

  function ticks(byTime, total, across, left) {
    const most = Math.max(3, Math.floor(total * across / 110)), rough = total / most;
    const power = 10 ** Math.floor(Math.log10(rough)), step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
    const made = [];
    for (let v = 0; v <= total; v += Math.max(step, byTime ? 0 : 1)) {
      made.push([left + v * across, byTime ? us(v).replace(/\.0+ /, " ") : String(Math.round(v) + 1)]);
    }
    return made;
  }

  function about(of, found) {
    const messages = found.reduce((n, each) => n + each.from.length, 0);
    const parts = [`Instance ${of.number} (${of.mode}), ${state.place + 1} of ${instances.length}: ${found.length} steps, `
      + `${messages} messages`];
    if (timed(of)) {
      const busy = found.reduce((t, each) => t + each.took, 0), waited = found.reduce((t, e) => t + (e.waited || 0), 0);
      parts.push(`${us(span(of))} from the first to the last`, `frames it was in took ${us(busy)}`,
        `its messages waited ${us(waited)} in all`);
    }
    if (of.loss !== null) parts.push(`loss ${of.loss.toPrecision(4)}`);
    at("about").textContent = parts.join("; ") + ".";
    which.value = state.place;
    at("number").value = of.number;
  }

  function listed(found) {
    const rows = document.createDocumentFragment();
    for (const each of found.slice(0, ALL)) {
      const row = document.createElement("tr");
      row.dataset.step = each.k;
      for (const text of [each.k + 1, nodes[each.node][0], NAMES[each.kind], each.shown || "–", each.version,
        place(each), each.start === null ? "–" : us(each.start), each.took === null ? "–" : us(each.took),
        each.waited === null ? "–" : us(each.waited)]) {
        row.append(Object.assign(document.createElement("td"), { textContent: text }));
      }
      rows.append(row);
    }
    at("all").querySelector("tbody").replaceChildren(rows);
  }

  function place(each) {
    const home = nodes[each.node][1], worker = frames.worker[each.f];
    return (worker === null ? "not traced" : `on worker ${worker}`) + (home ? ` (${home})` : "");
  }

  // --- one step --------------------------------------------------------------------------------------------

  function choose(step) {
    const { found, boxes, paths, x } = view;
    state.step = Math.max(0, Math.min(step, found.length - 1));
    boxes.forEach((box, k) => {
      box.classList.toggle("later", k > state.step);
      box.classList.toggle("chosen", k === state.step);
    });
    for (const [path, from, to] of paths) {
      path.setAttribute("class", to === state.step ? "in" : from === state.step ? "out" : to > state.step ? "later" : "");
    }
    for (const row of at("all").querySelectorAll("tr[data-step]")) {
      row.classList.toggle("chosen", Number(row.dataset.step) === state.step);
    }
    const scroll = at("scroll"), where = x(found[state.step]);
    if (where < scroll.scrollLeft + 40 || where > scroll.scrollLeft + scroll.clientWidth - 60) {
      scroll.scrollLeft = where - scroll.clientWidth / 2;
    }
    told(found[state.step]);
  }

  function told(each) {
    const list = document.createElement("dl"), heading = document.createElement("h3");
    heading.textContent = `Step ${each.k + 1} of ${view.found.length}: ${nodes[each.node][0]}, ${NAMES[each.kind]}`;
    const others = frames.firings[each.f] - 1;
    const behind = each.behind === undefined ? "" : each.behind
      ? `, ${each.behind} later than its forward step ${each.turn + 1} met` : `, that of its forward step ${each.turn + 1}`;
    const lines = [["state", each.shown || "none"], ["parameters", `version ${each.version}${behind}`],
      ["frame", `number ${frames.number[each.f]}, ${place(each)}, `
        + (others ? `with ${others} other firing${others > 1 ? "s" : ""}` : "alone")]];
    if (each.start !== null) {
      lines.push(["time", `began after ${us(each.start)}, took ${us(each.took)}`
        + (each.waited === null ? "" : `, ${us(each.waited)} after its last message was on its way`)]);
    }
    lines.push(["messages from", each.from], ["messages to", each.to]);
    for (const [name, value] of lines) {
      const text = document.createElement("dd");
      if (Array.isArray(value)) text.append(...linked(value));
      else text.textContent = value;
      list.append(Object.assign(document.createElement("dt"), { textContent: name }), text);
    }
    at("step").replaceChildren(heading, list);
  }

  function linked(numbers) {
    if (!numbers.length) return [document.createTextNode("none of these steps")];
    return numbers.map((k) => {
      const each = view.found[k], link = document.createElement("a");
      link.textContent = `${k + 1}: ${nodes[each.node][0]}${each.shown ? " (" + each.shown + ")" : ""}`;
      link.href = "#walk";
      link.addEventListener("click", (event) => { event.preventDefault(); choose(k); });
      return link;
    });
  }

  // --- controls --------------------------------------------------------------------------------------------

  function sorted() {
    const chosen = state.order[state.place], key = { longest: span, loss: (of) => of.loss ?? -Infinity }[at("order").value];
    state.order = instances.map((_, k) => k);
    if (key) {
      const keys = instances.map(key);
      state.order.sort((a, b) => keys[b] - keys[a]);
    }
    state.place = key || chosen === undefined ? 0 : chosen;
  }

  function go(to) {
    state.place = Math.max(0, Math.min(to, instances.length - 1));
    state.step = 0;
    draw();
  }

  function zoom(factor) {
    state.zoom = Math.max(1, Math.min(256, state.zoom * factor));
    draw();
  }

  function play(on) {
    clearInterval(state.timer);
    state.timer = on ? setInterval(() => {
      if (state.step + 1 < view.found.length) choose(state.step + 1); else play(false);
    }, 500) : null;
    at("play").textContent = on ? "stop" : "play";
    at("play").setAttribute("aria-pressed", String(on));
  }

  which.max = instances.length - 1;
  which.addEventListener("input", () => go(Number(which.value)));
  at("order").addEventListener("change", () => { sorted(); go(state.place); });
  at("axis").addEventListener("change", draw);
  at("number").addEventListener("change", () => {
    const number = Number(at("number").value), found = state.order.findIndex((k) => instances[k].number >= number);
    const exact = state.order.findIndex((k) => instances[k].number === number);
    go(exact >= 0 ? exact : Math.max(found, 0));
  });
  for (const [id, act] of Object.entries({
    before: () => go(state.place - 1), after: () => go(state.place + 1), first: () => choose(0),
    back: () => choose(state.step - 1), next: () => choose(state.step + 1), wider: () => zoom(2), narrower: () => zoom(0.5),
    play: () => play(state.timer === null),
  })) at(id).addEventListener("click", act);
  for (const shown of [svg, at("all")]) {
    shown.addEventListener("click", (event) => {
      const found = event.target.closest("[data-step]");
      if (found) choose(Number(found.dataset.step));
    });
  }
  document.querySelector(".walk").addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move && !["INPUT", "SELECT"].includes(event.target.tagName)) {
      event.preventDefault();
      choose(state.step + move);
    }
  });
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 100); });
  sorted();
  go(Math.floor(instances.length / 2));
})();
