// Pan and zoom for the drawings of graphs in a page. Without it a drawing is a picture in a box that scrolls.
(() => {
  "use strict";
  const LEAST = 0.04, MOST = 4; // pixels to a unit of the drawing
  const READABLE = 0.8; // what a drawing begins with at least, however large it is
  const EDGE = 30; // pixels that may be seen beyond the drawing
  const STEP = 1.25;
  const SVG = "http://www.w3.org/2000/svg";

  function element(name, about, parent) {
    const made = document.createElement(name);
    Object.assign(made, about);
    parent.append(made);
    return made;
  }

  // The picture as a part of the page. Its arrows' heads are found by a name, which no other may have.
  function drawn(picture) {
    const bytes = Uint8Array.from(atob(picture.src.split(",")[1]), (letter) => letter.charCodeAt(0));
    const own = `amphw-${Math.random().toString(36).slice(2)}-`;
    const text = new TextDecoder().decode(bytes).replaceAll(/(#|id=")amphw-/g, `$1${own}`);
    return document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  }

  function start(frame) {
    const picture = frame.querySelector("img"), svg = drawn(picture), box = document.createElement("div");
    box.className = "view";
    box.append(svg);
    picture.replaceWith(box);
    const [W, H] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
    const nodes = [...svg.querySelectorAll(".node[data-node]")];
    const edges = [...svg.querySelectorAll("[data-from]")];
    let x = 0, y = 0, scale = 0; // the corner of what is seen, in the drawing's units
    let pinned = null;

    frame.classList.add("ready");
    frame.style.maxHeight = "none";
    frame.style.overflow = "visible";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", picture.alt);
    svg.setAttribute("width", "100%");
    svg.setAttribute("height", "100%");

    // --- what is seen

    const width = () => box.clientWidth, height = () => box.clientHeight;
    const fitting = () => Math.min(1, width() / W, height() / H);

    function within(at, size, seen) {
      const room = size - seen, beyond = EDGE / scale;
      return room <= 0 ? room / 2 : Math.min(Math.max(at, -beyond), room + beyond);
    }

    function show() {
      const w = width() / scale, h = height() / scale;
      x = within(x, W, w);
      y = within(y, H, h);
      svg.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
      letters();
      outline(w, h);
    }

    // Names stay readable for longer than what else is written, as far as their boxes have room.
    function letters() {
      const small = scale < 0.5;
      svg.classList.toggle("far", small);
      for (const { text, size, most, y, grown } of names) {
        const now = small ? Math.min(most, Math.max(size, 9 / scale)) : size;
        text.setAttribute("font-size", now.toFixed(1));
        text.setAttribute("y", (small ? grown(now) : y).toFixed(1));
      }
    }

    const names = nodes.map((node) => {
      const rect = node.querySelector("rect"), text = node.querySelector("text");
      const room = Number(rect.getAttribute("width")) - 8, top = Number(rect.getAttribute("y"));
      const most = Math.min(26, room / (text.textContent.length * 0.61));
      const middle = top + Number(rect.getAttribute("height")) / 2;
      const grown = (size) => middle + 0.35 * size;
      return { text, size: 13, most: Math.max(13, most), y: Number(text.getAttribute("y")), grown };
    });
    for (const text of svg.querySelectorAll(".title")) {
      const at = Number(text.getAttribute("y"));
      const most = Math.max(11, Math.min(24, Number(text.dataset.room) / (text.textContent.length * 0.61)));
      names.push({ text, size: 11, most, y: at, grown: (size) => at + (size - 11) * 0.8 });
    }

    function zoom(by, px = width() / 2, py = height() / 2) {
      const now = Math.min(Math.max(scale * by, Math.min(LEAST, fitting())), MOST);
      x += px / scale - px / now;
      y += py / scale - py / now;
      scale = now;
      show();
    }

    function pan(px, py) {
      x += px / scale;
      y += py / scale;
      show();
    }

    function centre(cx, cy) {
      x = cx - width() / scale / 2;
      y = cy - height() / scale / 2;
      show();
    }

    function whole() {
      scale = fitting();
      x = y = 0;
      show();
    }

    // Of a node, in the drawing's units.
    function place(node) {
      const rect = node.querySelector("rect"), shift = node.parentNode.transform.baseVal[0].matrix;
      const [left, top, w, h] = ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name)));
      return [left + w / 2 + shift.e, top + h / 2 + shift.f];
    }

    function begin() {
      scale = Math.min(1, Math.max(READABLE, width() / W));
      const most = frame.dataset.fill ? window.innerHeight - 120 : 0.7 * window.innerHeight;
      box.style.height = `${Math.max(220, Math.min(most, H * scale + 2))}px`;
      x = nodes.length ? place(nodes[0])[0] - width() / scale / 2 : 0;
      y = 0;
      show();
    }

    // --- the small map of it all

    const map = document.createElementNS(SVG, "svg");
    map.setAttribute("viewBox", `0 0 ${W} ${H}`);
    map.setAttribute("class", "map amphw-graph");
    map.setAttribute("aria-hidden", "true");
    const paper = svg.querySelector("rect.paper").cloneNode();
    const inner = svg.querySelector(":scope > g").cloneNode();
    for (const kind of ["region", "node"])
      for (const one of svg.querySelectorAll(`:scope > g > .${kind}`)) {
        const group = one.cloneNode();
        group.append(one.querySelector("rect").cloneNode());
        inner.append(group);
      }
    const seen = document.createElementNS(SVG, "rect");
    seen.setAttribute("class", "seen");
    map.append(paper, inner, seen);
    box.append(map);

    function outline(w, h) {
      const all = w >= W && h >= H;
      map.style.display = all ? "none" : "";
      if (all) return;
      const room = Math.min(150 / W, 150 / H, (0.4 * width()) / W, (0.4 * height()) / H);
      map.style.width = `${W * room}px`;
      map.style.height = `${H * room}px`;
      const [left, top] = [Math.max(0, x), Math.max(0, y)];
      const size = { x: left, y: top, width: Math.min(W, x + w) - left, height: Math.min(H, y + h) - top };
      for (const [name, value] of Object.entries(size)) seen.setAttribute(name, Math.max(0, value));
      seen.style.strokeWidth = 2 / room;
    }

    function jump(event) {
      const at = map.getBoundingClientRect();
      centre(((event.clientX - at.left) / at.width) * W, ((event.clientY - at.top) / at.height) * H);
    }
    map.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      map.setPointerCapture(event.pointerId);
      jump(event);
    });
    map.addEventListener("pointermove", (event) => map.hasPointerCapture(event.pointerId) && jump(event));

    // --- one node, with what it is connected to

    const said = element("div", { className: "said" }, frame);
    said.setAttribute("role", "status");
    const HELP = matchMedia("(pointer: coarse)").matches
      ? "Drag to move, pinch to zoom; tap on a node to see what it is connected to."
      : "Drag to move. Click into it, then turn the wheel, or + and − to zoom; n and p go from node to node.";
    said.textContent = HELP;

    function mark(of) {
      svg.classList.toggle("some", Boolean(of));
      const on = new Set();
      if (of?.dataset.node !== undefined) {
        const name = of.dataset.node;
        on.add(name);
        for (const edge of edges) {
          const own = edge.dataset.from === name || edge.dataset.to === name;
          edge.classList.toggle("on", own);
          if (own) on.add(edge.dataset.from).add(edge.dataset.to);
        }
      } else if (of) {
        for (const edge of edges) edge.classList.toggle("on", edge.dataset.edge === of.dataset.edge);
        on.add(of.dataset.from).add(of.dataset.to);
      }
      for (const node of nodes) node.classList.toggle("on", on.has(node.dataset.node));
      said.textContent = of ? about(of) : HELP;
    }

    function about(of) {
      const told = of.querySelector("title")?.textContent ?? "";
      if (of.dataset.node === undefined) return told || `${of.dataset.from} → ${of.dataset.to}`;
      const name = of.dataset.node, once = (all) => [...new Set(all)].join(", ");
      const from = once(edges.filter((e) => e.dataset.to === name).map((e) => e.dataset.from));
      const to = once(edges.filter((e) => e.dataset.from === name).map((e) => e.dataset.to));
      return told + (from && `; from ${from}`) + (to && `; to ${to}`);
    }

    const target = (event) => event.target.closest?.("[data-node], [data-from]") ?? null;
    svg.addEventListener("pointerover", (event) => {
      if (event.pointerType === "mouse" && !pinned && !held.size) mark(target(event));
    });
    svg.addEventListener("pointerleave", () => pinned || mark(null));

    function step(by) {
      const at = nodes.indexOf(pinned);
      pinned = nodes[at < 0 ? (by > 0 ? 0 : nodes.length - 1) : (at + by + nodes.length) % nodes.length];
      mark(pinned);
      if (scale < READABLE) scale = READABLE;
      centre(...place(pinned));
    }

    // --- mouse and fingers

    const held = new Map();
    let moved = false;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held.set(event.pointerId, [event.clientX, event.clientY]);
      moved = moved && held.size > 1;
      box.focus({ preventScroll: true });
    });
    svg.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const now = [event.clientX, event.clientY];
      if (!moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      const other = [...held].find(([id]) => id !== event.pointerId)?.[1];
      held.set(event.pointerId, now);
      if (!other) return pan(before[0] - now[0], before[1] - now[1]);
      const apart = (one) => Math.max(1, Math.hypot(one[0] - other[0], one[1] - other[1]));
      const at = box.getBoundingClientRect();
      pan((before[0] - now[0]) / 2, (before[1] - now[1]) / 2);
      zoom(apart(now) / apart(before), (now[0] + other[0]) / 2 - at.left, (now[1] + other[1]) / 2 - at.top);
    });
    const release = (event) => {
      if (!held.delete(event.pointerId) || moved || event.type === "pointercancel") {
        moved = moved && held.size > 0;
        return;
      }
      const of = target(event);
      pinned = of === pinned ? null : of;
      mark(pinned);
    };
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("dblclick", (event) => {
      const at = box.getBoundingClientRect();
      zoom(event.shiftKey ? 0.5 : 2, event.clientX - at.left, event.clientY - at.top);
    });
    // The wheel scrolls the page until the drawing was clicked on; pinching on a pad is Ctrl and the wheel.
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !box.contains(document.activeElement)) return;
      event.preventDefault();
      const at = box.getBoundingClientRect(), lines = event.deltaMode === 1 ? 20 : 1;
      const by = Math.min(100, Math.max(-100, event.deltaY * lines));
      zoom(Math.exp(-by / (event.ctrlKey ? 120 : 400)), event.clientX - at.left, event.clientY - at.top);
    }, { passive: false });

    // --- keys and buttons

    const actions = {
      "+": ["zoom in", () => zoom(STEP)],
      "-": ["zoom out", () => zoom(1 / STEP)],
      0: ["show all of it", whole],
      1: ["full size", () => zoom(1 / scale)],
      f: ["fill the screen, or leave that", () =>
        document.fullscreenElement ? document.exitFullscreen() : frame.requestFullscreen()],
    };
    const others = {
      "=": actions["+"][1],
      _: actions["-"][1],
      ArrowLeft: () => pan(-60, 0),
      ArrowRight: () => pan(60, 0),
      ArrowUp: () => pan(0, -60),
      ArrowDown: () => pan(0, 60),
      n: () => step(1),
      p: () => step(-1),
      Escape: () => mark((pinned = null)),
    };
    box.addEventListener("keydown", (event) => {
      const action = others[event.key] ?? actions[event.key]?.[1];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    });
    const bar = element("div", { className: "bar" }, box);
    const faces = { "+": "+", "-": "−", 0: "all", 1: "1:1", f: "full" };
    for (const key of ["+", "-", "0", "1", ...(document.fullscreenEnabled ? ["f"] : [])]) {
      const [name, action] = actions[key];
      const button = element("button", { type: "button", textContent: faces[key], title: `${name} (${key})` }, bar);
      button.setAttribute("aria-label", name);
      button.addEventListener("click", action);
    }

    // Where it is shown later than it is written, as in a closed section, it has no size before.
    new ResizeObserver(() => {
      if (width() && !scale) begin();
      else if (width()) show();
    }).observe(box);
    if (width()) begin();
  }

  for (const box of document.querySelectorAll(".amphw-zoom:not(.ready)")) start(box);
})();
