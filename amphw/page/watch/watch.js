"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const known = (value) => value !== null && value !== undefined;
  const number = (value) => known(value) ? NUMBER.format(value) : "–";

  function tile(name, value, detail) {
    const made = document.createElement("div");
    made.className = "tile";
    for (const [kind, text] of [["name", name], ["value", value], ["detail", detail]]) {
      made.append(Object.assign(document.createElement("div"), { className: kind, textContent: text }));
    }
    return made;
  }

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /** A line through the values of epochs; those that are not known are left out. */
  function chart(svg, values) {
    const points = values.map((v, k) => [k + 1, v]).filter(([, v]) => known(v));
    const width = svg.clientWidth || 340, height = 190, left = 58, below = 24;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (!points.length) {
      svg.replaceChildren(element("text", { x: 8, y: 40 }, "nothing yet: an epoch has to end first"));
      return;
    }
    let low = Math.min(...points.map((p) => p[1])), high = Math.max(...points.map((p) => p[1]));
    if (high === low) [low, high] = [low - Math.abs(low) * 0.1 - 1e-9, high + Math.abs(high) * 0.1 + 1e-9];
    const last = Math.max(2, points[points.length - 1][0]);
    const x = (k) => left + (width - left - 14) * (k - 1) / (last - 1);
    const y = (v) => 10 + (height - below - 20) * (1 - (v - low) / (high - low));
    const parts = [];
    for (const v of [low, (low + high) / 2, high]) {
      parts.push(element("line", { x1: left, x2: width - 14, y1: y(v), y2: y(v) }));
      parts.push(element("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, number(v)));
    }
    for (const k of new Set([1, Math.ceil(last / 2), last])) {
      parts.push(element("text", { x: x(k), y: height - 6, "text-anchor": "middle" }, k));
    }
    parts.push(element("path", { d: "M" + points.map(([k, v]) => `${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("L") }));
    for (const [k, v] of points.slice(-40)) parts.push(element("circle", { cx: x(k), cy: y(v), r: 3 }));
    svg.replaceChildren(...parts);
  }

  function bars(shares) {
    const parts = [];
    (shares || []).forEach((share, k) => {
      const track = Object.assign(document.createElement("div"), { className: "track" });
      const bar = document.createElement("i");
      bar.style.width = known(share) ? `${Math.round(100 * share)}%` : "0";
      track.append(bar);
      parts.push(Object.assign(document.createElement("span"), { textContent: `worker ${k}` }), track,
        Object.assign(document.createElement("span"), { textContent: known(share) ? `${Math.round(100 * share)} %` : "–" }));
    });
    at("workers").replaceChildren(...parts);
  }

  function show({ running, live, epochs, summary }) {
    const last = epochs[epochs.length - 1], now = live || last;
    const state = summary ? `Ended after ${summary.epochs} epochs, by ${summary.stopped_by}.`
      : !running ? "No process trains in this folder; these are its last figures."
      : live ? `Epoch ${live.epoch}: ${live.done.toLocaleString("en")} of ${live.total.toLocaleString("en")} instances.`
      : "Under way; it has not said where it stands yet (it may be validating).";
    at("state").textContent = state;
    at("state").classList.toggle("lost", !running && !summary);
    at("done").value = live && live.total ? live.done / live.total : summary ? 1 : 0;
    const metrics = last ? Object.keys(last.valid) : [];
    const metric = (summary && summary.metric) || metrics.find((name) => name !== "loss") || metrics[0];
    const valid = (live && live.valid) || (last && last.valid) || {};
    if (now) {
      at("tiles").replaceChildren(
        tile("throughput", `${number(live ? live.rate : now.instances_per_s)}/s`, live ? "in this epoch" : "in the last epoch"),
        tile("training loss", number(live ? live.loss : now.train_loss), live ? "of this epoch so far" : ""),
        ...Object.keys(valid).map((name) => tile(`validation ${name}`, number(valid[name]), "")),
        tile("in flight", number(now.keys_in_flight), "instances"),
        tile("staleness", `${number(now.staleness_p50)} / ${number(now.staleness_p99)}`, "versions, p50 / p99"),
        tile("epochs", String(epochs.length), last ? `${number(last.seconds)} s of training` : ""));
      bars(now.utilisation);
    }
    at("metric-name").textContent = metric ? `Validation ${metric}` : "Validation";
    chart(at("metric"), epochs.map((each) => each.valid[metric]));
    chart(at("loss"), epochs.map((each) => each.train_loss));
    chart(at("rate"), epochs.map((each) => each.instances_per_s));
    chart(at("stale"), epochs.map((each) => each.staleness_p99));
    const report = at("report");
    if (summary && !report.firstChild) {
      report.append(Object.assign(document.createElement("a"), { href: "report.html", textContent: "The report of the run" }));
    } else if (!summary) report.replaceChildren();
  }

  async function ask() {
    try {
      const answer = await fetch("state", { cache: "no-store" });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      show(await answer.json());
    } catch (error) {
      at("state").textContent = `amphw watch does not answer any more (${error.message}).`;
      at("state").classList.add("lost");
    }
    setTimeout(ask, 1000);
  }
  ask();
})();
