// Timelines on one time axis, on a canvas: pan, zoom, hover, step through actions by keyboard.
//
//   const view = await mount(host, data)     data: see viewer.py; host: an empty element
//   await view.show(data)                    other timelines in the same place
//   view.destroy()
//
// Colours come from the host's CSS: --ink, --muted, --paper, --idle, --accent. The language is the
// root element's `lang` (en, zh) and may change at any time.

const UPPER = 1, LOWER = 2, CAUSE = 4, TRANSFER = 8;
const PAD = 8, HEADING = 26, AXIS = 34;

const WORDS = {
  en: {
    forward: "forward", backward: "backward", backward_input: "backward, input gradient",
    backward_weight: "backward, weight gradient", pair: "overlapped pair", other: "",
    stage: (s, r) => `stage ${s} on rank ${r}`, microbatch: (m) => `microbatch ${m}`,
    rank: (r) => `rank ${r}`, time: "time", start: "start", duration: "duration", end: "end",
    waited: (t, a, r) => `waited ${t} for ${a} on rank ${r}`,
    waitedTransfer: (t, a, r) => `waited ${t} for the transfer of ${a} from rank ${r}`,
    late: (t) => `began ${t} after its rank was free, with its input there`,
    out: "Zoom out", into: "Zoom in", fit: "Whole step",
    help: "Drag to pan, ctrl + wheel or pinch to zoom. Keyboard: arrows step through actions and " +
      "ranks, a d pan, w s zoom, 0 shows the whole step.",
    touch: "Drag to pan, pinch to zoom, tap an action.",
    label: "Timelines: rows are ranks, colours are kinds of action. Arrow keys step through them.",
    some: (n, all) => `${n} of ${all} ranks`,
  },
  zh: {
    forward: "前向", backward: "反向", backward_input: "反向：输入梯度",
    backward_weight: "反向：权重梯度", pair: "重叠对", other: "",
    stage: (s, r) => `阶段 ${s}，rank ${r}`, microbatch: (m) => `微批次 ${m}`,
    rank: (r) => `rank ${r}`, time: "时间", start: "开始", duration: "时长", end: "结束",
    waited: (t, a, r) => `等待 ${t}：rank ${r} 上的 ${a}`,
    waitedTransfer: (t, a, r) => `等待 ${t}：来自 rank ${r} 的 ${a} 的传输`,
    late: (t) => `所在 rank 空闲 ${t} 后才开始，输入早已就绪`,
    out: "缩小", into: "放大", fit: "整个步骤",
    help: "拖动平移，ctrl + 滚轮或双指缩放。键盘：方向键逐个浏览动作和 rank，a d 平移，w s 缩放，0 显示整个步骤。",
    touch: "拖动平移，双指缩放，点按查看动作。",
    label: "时间线：每行一个 rank，颜色表示动作种类。用方向键逐个浏览。",
    some: (n, all) => `${all} 个 rank 中的 ${n} 个`,
  },
};

export function language() {
  return document.documentElement.lang.startsWith("zh") ? "zh" : "en";
}

// A number to four significant digits, never rounded above the point; the same as in scale.py.
export function shown(value) {
  if (Math.abs(value) < 1e-9) return "0";
  const decimals = Math.min(Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))), 20);
  return value.toLocaleString("en-US", { maximumFractionDigits: decimals });
}

// The columns of a timeline: zlib-compressed, those of 32-bit integers before those of bytes.
async function decode(timeline) {
  const packed = Uint8Array.from(atob(timeline.columns), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const out = { ...timeline, whole: timeline.length * timeline.per_unit };
  let at = 0;
  for (const [names, Type] of [[timeline.integers, Int32Array], [timeline.bytes, Uint8Array]]) {
    for (const name of names) {
      out[name] = new Type(bytes, at, timeline.count);
      at += out[name].byteLength;
    }
  }
  return out;
}

// First position in [low, high) whose start is above `time`.
function above(starts, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

function element(name, className, parent) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

export async function mount(host, first) {
  host.classList.add("viewer");
  const bar = element("div", "viewer-bar", host);
  const buttons = [["out", "−"], ["into", "+"], ["fit", "⤢"]].map(([word, sign]) => {
    const button = element("button", "", bar);
    button.type = "button";
    button.textContent = sign;
    button.word = word;
    return button;
  });
  const help = element("span", "viewer-help", bar);
  const frame = element("div", "viewer-frame", host);
  const canvas = element("canvas", "", frame);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  const tip = element("div", "viewer-tip", frame);
  tip.hidden = true;
  const spoken = element("div", "viewer-spoken", host);
  spoken.setAttribute("aria-live", "polite");
  const context = canvas.getContext("2d");

  let data, colors = [], lines = [], rows = [], whole = 1, gutter = 0, width = 0, height = 0;
  let left = 0, span = 1;        // the visible window, in the shown unit
  let hovered = null;            // {line, rank, index}
  let waiting = 0;               // the animation frame asked for

  let asked = 0;

  async function show(next) {
    const turn = ++asked;
    const decoded = await Promise.all(next.timelines.map(decode));
    if (turn !== asked) return;    // a later call was faster
    data = next;
    lines = decoded;
    colors = data.kinds.map((name) => data.shades[name]);
    whole = Math.max(...lines.map((line) => line.whole), 1e-12);
    hovered = null;
    tip.hidden = true;
    layout();
    fit();
  }

  function layout() {
    rows = [];
    let y = PAD;
    for (const line of lines) {
      const count = line.ranks.length;
      const pitch = count <= 8 ? 28 : count <= 16 ? 23 : count <= 32 ? 17 : count <= 64 ? 11 : 5;
      line.top = y;
      y += HEADING;
      line.ranks.forEach((rank, i) => {
        rows.push({ line, rank, i, y, height: pitch - (pitch > 8 ? 3 : 1) });
        y += pitch;
      });
      y += PAD;
    }
    height = y + AXIS;
    canvas.style.height = `${height}px`;
  }

  function fit() {
    left = 0;
    span = whole;
    redraw();
  }

  function zoom(factor, center = left + span / 2) {
    const next = Math.min(Math.max(span * factor, whole * 1e-6), whole);
    left = center - (center - left) * next / span;
    span = next;
    clampView();
  }

  function clampView() {
    left = Math.min(Math.max(left, 0), whole - span);
    redraw();
  }

  const toX = (time) => gutter + (time - left) / span * (width - gutter - PAD);
  const toTime = (x) => left + (x - gutter) / (width - gutter - PAD) * span;

  function redraw() {
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); });
  }

  function draw() {
    width = canvas.clientWidth;
    if (!width || !rows.length) return;
    const ratio = window.devicePixelRatio || 1;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
      [canvas.width, canvas.height] = pixels;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(host);
    const color = (name) => style.getPropertyValue(name).trim();
    const look = {
      ink: color("--ink"), muted: color("--muted"), paper: color("--paper"),
      idle: color("--idle"), accent: color("--accent"), font: style.fontFamily,
    };
    const words = WORDS[language()];
    context.clearRect(0, 0, width, height);
    context.font = `12px ${look.font}`;
    const longest = String(Math.max(...lines.map((line) => line.of_ranks - 1)));
    gutter = Math.ceil(context.measureText(words.rank(longest)).width) + 18;
    for (const line of lines) drawHeading(line, words, look);
    for (const row of rows) drawRow(row, words, look);
    drawAxis(words, look);
    if (hovered) drawHover(look);
  }

  function drawHeading(line, words, look) {
    const some = line.ranks.length < line.of_ranks
      ? ` (${words.some(line.ranks.length, line.of_ranks)})` : "";
    context.fillStyle = look.ink;
    context.font = `600 13px ${look.font}`;
    context.textAlign = "left";
    context.fillText(line.heading[language()] + some, PAD, line.top + 16, width - 2 * PAD);
  }

  function drawRow(row, words, look) {
    const { line, y, height: tall } = row;
    const every = Math.ceil(14 / (tall + 1));
    if (row.i % every === 0) {
      context.fillStyle = look.muted;
      context.font = `12px ${look.font}`;
      context.textAlign = "right";
      context.fillText(words.rank(row.rank), gutter - 8, y + tall / 2 + 4);
    }
    const right = width - PAD;
    const clip = (x) => Math.min(Math.max(x, gutter), right);
    const rowEnd = clip(toX(line.whole));
    context.fillStyle = look.idle;
    context.fillRect(gutter, y, rowEnd - gutter, tall);
    const size = Math.min(13, tall - 5);
    drawActions(row, line.offsets[2 * row.i + 1], line.offsets[2 * row.i + 2], size, clip, look);
    drawActions(row, line.offsets[2 * row.i], line.offsets[2 * row.i + 1], size, clip, look);
  }

  // The actions begin … end − 1 of a row; those thinner than a pixel share one. Boxes are painted
  // colour by colour: setting a colour costs more than a box.
  function drawActions(row, begin, end, size, clip, look) {
    const { line, y, height: tall } = row;
    const { start, duration, kind, chunk, flags, microbatch } = line;
    const perTick = line.per_unit / span * (width - gutter - PAD);
    const origin = gutter - left / line.per_unit * perTick;
    const last = (left + span) / line.per_unit;
    const boxes = [], labels = [];
    let painted = -1;
    for (let at = visibleFrom(line, begin, end); at < end && start[at] <= last; at++) {
      const from = origin + start[at] * perTick, wide = duration[at] * perTick;
      if (wide === 0 || from + wide <= gutter) continue;
      const half = flags[at] & (UPPER | LOWER);
      let a, b;
      if (wide < 1.5) {
        const pixel = Math.floor(from);
        if (pixel === painted && !half) continue;
        painted = pixel;
        a = clip(pixel);
        b = a + 1;
      } else {
        a = clip(from);
        b = Math.max(clip(from + wide) - (wide > 5 ? 1 : 0), a + 0.5);
      }
      const own = half ? tall / 2 : tall;
      const top = half === LOWER ? y + own : y;
      (boxes[kind[at] * 4 + chunk[at]] ??= []).push(a, top, b - a, own);
      if (b - a < 8 || microbatch[at] < 0 || !colors[kind[at]]) continue;
      const text = String(microbatch[at]);
      const room = (b - a - 2) / (text.length * 0.62);
      const letters = Math.floor(Math.min(half ? Math.min(size, own - 1) : size, room));
      if (letters < 8) continue;
      labels.push([text, (a + b) / 2, top + own / 2 + letters * 0.36, letters, chunk[at] % 2]);
    }
    boxes.forEach((found, key) => {
      context.fillStyle = colors[key >> 2]?.[key & 3] ?? data.other;
      for (let i = 0; i < found.length; i += 4) {
        context.fillRect(found[i], found[i + 1], found[i + 2], found[i + 3]);
      }
    });
    context.textAlign = "center";
    let font = 0;
    for (const [text, x, middle, letters, ink] of labels) {
      if (letters !== font) context.font = `${font = letters}px ${look.font}`;
      context.fillStyle = data.ink[ink];
      context.fillText(text, x, middle);
    }
  }

  // The first position whose action may be seen; before it everything has ended.
  function visibleFrom(line, begin, end) {
    const edge = left / line.per_unit;
    let at = Math.max(above(line.start, begin, end, edge) - 1, begin);
    // both halves of a pair begin together, and actions of no length may stand before
    while (at > begin && line.start[at - 1] + line.duration[at - 1] >= edge) at--;
    return at;
  }

  function drawAxis(words, look) {
    const y = height - AXIS + 4, right = width - PAD;
    context.strokeStyle = look.muted;
    context.fillStyle = look.muted;
    context.lineWidth = 1;
    context.font = `12px ${look.font}`;
    context.textAlign = "center";
    context.beginPath();
    context.moveTo(gutter, y + 0.5);
    context.lineTo(right, y + 0.5);
    const wanted = span / Math.max((right - gutter) / 90, 1);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted * (1 - 1e-9));
    const decimals = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 12);
    for (let i = Math.ceil(left / step - 1e-9) + 0; i * step <= left + span * (1 + 1e-9); i++) {
      const x = toX(i * step);
      context.moveTo(x, y);
      context.lineTo(x, y + 5);
      const text = (i * step).toLocaleString("en-US", {
        minimumFractionDigits: decimals, maximumFractionDigits: decimals,
      });
      if (x < right - 40) context.fillText(text, x, y + 18);
    }
    context.stroke();
    context.textAlign = "right";
    context.fillText(lines[0].unit || words.time, right, y + 18);
  }

  // The place in `ranks` of the rank that an action runs on.
  const rankPlace = (line, index) => (above(line.offsets, 0, line.offsets.length, index) - 1) >> 1;

  function boxOf(line, index) {
    const place = rankPlace(line, index);
    const row = rows.find((r) => r.line === line && r.i === place);
    const from = line.start[index] * line.per_unit;
    return {
      row, x: toX(from), end: toX(from + line.duration[index] * line.per_unit),
      middle: row.y + row.height / 2,
    };
  }

  function outline(line, index, color) {
    const { row, x, end } = boxOf(line, index);
    const a = Math.max(x, gutter), b = Math.min(end, width - PAD);
    if (b <= a) return;
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.strokeRect(a, row.y, Math.max(b - a - 1, 1), row.height);
  }

  function drawHover(look) {
    const { line, index } = hovered;
    for (const part of partsOf(line, index)) {
      const need = line.need[part];
      if (need < 0) continue;
      const source = boxOf(line, need), target = boxOf(line, part);
      outline(line, need, look.accent);
      context.strokeStyle = look.accent;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(Math.min(Math.max(source.end, gutter), width - PAD), source.middle);
      context.lineTo(Math.min(Math.max(target.x, gutter), width - PAD), target.middle);
      context.stroke();
    }
    outline(line, index, look.ink);
  }

  const partsOf = (line, index) =>
    line.flags[index] & UPPER ? [index, index + 1]
      : line.flags[index] & LOWER ? [index - 1, index] : [index];

  function nameOf(line, index) {
    const plain = (i) => {
      const mb = line.microbatch[i];
      return `${line.stage[i]}${data.kinds[line.kind[i]]}${mb < 0 ? "" : mb}`;
    };
    const parts = partsOf(line, index);
    return parts.length === 2 ? `(${parts.map(plain).join(";")})OVERLAP_F_B` : plain(index);
  }

  const rankOf = (line, index) => line.ranks[rankPlace(line, index)];

  function describe({ line, index }) {
    const words = WORDS[language()];
    const time = (value) => `${shown(value * line.per_unit)} ${line.unit}`.trim();
    const parts = partsOf(line, index);
    const kind = data.kinds[line.kind[index]];
    const word = parts.length === 2 ? words.pair
      : { F: words.forward, B: words.backward, I: words.backward_input, W: words.backward_weight }[kind]
        ?? words.other;
    const separator = language() === "zh" ? "，" : ", ";
    const about = parts.map((i) => [
      words.stage(line.stage[i], rankOf(line, i)),
      line.microbatch[i] < 0 ? "" : words.microbatch(line.microbatch[i]),
    ].filter(Boolean).join(separator));
    const facts = [
      [nameOf(line, index), word].filter(Boolean).join("  "),
      ...about,
      `${words.start} ${time(line.start[index])} · ${words.duration} ${time(line.duration[index])} · ` +
        `${words.end} ${time(line.start[index] + line.duration[index])}`,
    ];
    const gap = line.gap[index];
    if (gap) {
      const by = parts.find((i) => line.flags[i] & CAUSE);
      if (by === undefined) facts.push(words.late(time(gap)));
      else {
        const need = line.need[by];
        if (need >= 0) {
          const phrase = line.flags[by] & TRANSFER ? words.waitedTransfer : words.waited;
          facts.push(phrase(time(gap), nameOf(line, need), rankOf(line, need)));
        }
      }
    }
    return facts;
  }

  function hit(x, y) {
    const row = rows.find((r) => y >= r.y && y < r.y + r.height + 1);
    if (!row || x < gutter || x > width - PAD) return null;
    const { line } = row, [compute, beside, end] = line.offsets.slice(2 * row.i, 2 * row.i + 3);
    const index = at(line, compute, beside, x) ?? at(line, beside, end, x);
    return index === undefined ? null : { line, row, index };
  }

  // The action of begin … end − 1 at a place, also one too thin to be met exactly.
  function at(line, begin, end, x) {
    const slack = 2 / (width - gutter) * span, time = toTime(x);
    let index = above(line.start, begin, end, (time + slack) / line.per_unit) - 1;
    while (index >= begin && !line.duration[index]) index--;
    if (index < begin) return undefined;
    const until = (line.start[index] + line.duration[index]) * line.per_unit;
    return until + slack < time ? undefined : index;
  }

  function select(next, x, y) {
    const same = next && hovered && next.line === hovered.line && next.index === hovered.index;
    hovered = next;
    tip.hidden = !next;
    canvas.style.cursor = next ? "pointer" : "grab";
    if (next) {
      if (!same || !tip.childElementCount) {
        tip.replaceChildren(...describe(next).map((text, i) => {
          const part = document.createElement(i ? "div" : "strong");
          part.textContent = text;
          return part;
        }));
      }
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(0, Math.min(x + 14, width - box.width - 4))}px`;
      tip.style.top = `${y + box.height + 24 > height ? y - box.height - 10 : y + 16}px`;
    }
    if (!same) redraw();
  }

  // keyboard: the selected action moves, and the view follows it
  function step(direction) {
    if (!rows.length) return;
    if (!hovered) return choose(rows[0], rows[0].line.offsets[2 * rows[0].i]);
    const { line, row } = hovered;
    let index = hovered.index + direction;
    const [begin, end] = line.offsets.slice(2 * row.i, 2 * row.i + 2);
    while (index >= begin && index < end
      && (!line.duration[index] || (line.flags[index] & LOWER && direction > 0))) index += direction;
    if (index >= begin && index < end) choose(row, index);
  }

  function change(direction) {
    if (!hovered) return step(1);
    const row = rows[rows.indexOf(hovered.row) + direction];
    if (!row) return;
    const time = hovered.line.start[hovered.index] * hovered.line.per_unit;
    const { line } = row;
    const [begin, end] = line.offsets.slice(2 * row.i, 2 * row.i + 2);
    if (begin === end) return;
    choose(row, Math.max(above(line.start, begin, end, time / line.per_unit) - 1, begin));
  }

  function choose(row, index) {
    const { line } = row;
    if (line.flags[index] & LOWER) index -= 1;
    const from = line.start[index] * line.per_unit, length = line.duration[index] * line.per_unit;
    if (from < left || from + length > left + span) left = from + length / 2 - span / 2;
    clampView();
    select({ line, row, index }, toX(from), row.y + row.height);
    spoken.textContent = describe(hovered).join(". ");
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowRight: () => step(1), ArrowLeft: () => step(-1),
      ArrowDown: () => change(1), ArrowUp: () => change(-1),
      d: () => { left += span / 5; clampView(); }, a: () => { left -= span / 5; clampView(); },
      w: () => zoom(0.7), s: () => zoom(1 / 0.7), "+": () => zoom(0.7), "=": () => zoom(0.7),
      "-": () => zoom(1 / 0.7), 0: fit, Home: fit, Escape: () => select(null),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // pointers: one drags, two pinch
  const pointers = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, place(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event), before = pointers.get(event.pointerId);
    if (!before) return select(hit(now.x, now.y), now.x, now.y);
    const perPixel = span / (width - gutter - PAD);
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const [was, is] = [Math.abs(before.x - other.x), Math.abs(now.x - other.x)];
      if (was > 8 && is > 8) zoom(was / is, toTime((now.x + other.x) / 2));
    } else {
      moved += Math.abs(now.x - before.x);
      if (moved > 3) {
        canvas.setPointerCapture(event.pointerId);
        canvas.style.cursor = "grabbing";
        tip.hidden = true;
        left -= (now.x - before.x) * perPixel;
        clampView();
      }
    }
    pointers.set(event.pointerId, now);
  });
  const release = (event) => {
    if (pointers.delete(event.pointerId) && moved <= 3 && event.type === "pointerup") {
      const at = place(event);
      select(hit(at.x, at.y), at.x, at.y);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !pointers.size) select(null);
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.5, toTime(place(event).x)));
  canvas.addEventListener("wheel", (event) => {
    const perPixel = span / (width - gutter - PAD);
    if (event.ctrlKey || event.metaKey) {
      zoom(Math.exp(event.deltaY * 0.004), toTime(place(event).x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      left += (event.deltaX || event.deltaY) * perPixel;
      clampView();
    } else return;                // a plain wheel scrolls the page
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("blur", () => select(null));

  buttons[0].addEventListener("click", () => zoom(2));
  buttons[1].addEventListener("click", () => zoom(0.5));
  buttons[2].addEventListener("click", fit);

  function speak() {
    const words = WORDS[language()];
    for (const button of buttons) {
      button.title = words[button.word];
      button.setAttribute("aria-label", words[button.word]);
    }
    help.textContent = window.matchMedia("(pointer: coarse)").matches ? words.touch : words.help;
    canvas.setAttribute("aria-label", words.label);
    redraw();
  }

  const resized = new ResizeObserver(redraw);
  resized.observe(canvas);
  const watched = new MutationObserver(speak);
  watched.observe(document.documentElement, { attributes: true });
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", redraw);

  await show(first);
  speak();
  return {
    show,
    fit,
    destroy() {
      resized.disconnect();
      watched.disconnect();
      scheme.removeEventListener("change", redraw);
      host.replaceChildren();
    },
  };
}
