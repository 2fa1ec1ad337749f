// All ranks by state in one strip, one to ten thousand, and those to look at by name.

import { nameTree, rankTree } from "./bars.js";
import { textScale } from "./chart_dom.js";
import { el, patch, printableText } from "./dom.js";
import { earlierHangsTree } from "./earlier_hangs.js";
import { asSentence, formatAge, formatNumber, isKnown } from "./format.js";
import {
  aboutState,
  agesOf,
  countedStates,
  awaitedRanks,
  graveRanks,
  tilesOfStrip,
} from "./rank_states.js";

const MOST_NAMED_RANKS = 8;
const SPARE = ["Heartbeat", "Step"]; // columns that go where there is little room
const HIGHEST_STRIP = 132;

/** Counts, the strip, and a table of ranks that are lost, stuck or late. */
export function createLiveness(container, actions) {
  const counts = addedDiv(container, "state-counts");
  const strip = addedStrip(container);
  const named = addedDiv(container, "grave-ranks");
  const earlier = addedDiv(container, "earlier-hangs");
  let last = null;
  let shown = null;
  let drawn = { how: null, ranks: null };
  let focus = 0;

  function draw() {
    if (!last || !last.ranks.rank.length || strip.clientWidth === 0) return;
    const hasFocus = document.activeElement === strip;
    const how = [strip.clientWidth, window.devicePixelRatio, textScale(), last.theme, hasFocus ? focus : -1, ...last.culprits].join();
    if (how === drawn.how && areSameRanks(drawn.ranks, last.ranks)) return;
    drawn = { how, ranks: last.ranks };
    shown = drawnStrip(strip, last, hasFocus ? focus : null);
  }

  function tellFocus() {
    if (last) strip.setAttribute("aria-valuetext", rankText(last.ranks, focus));
    strip.setAttribute("aria-valuenow", String(focus));
  }

  function moveTo(place) {
    focus = Math.max(0, Math.min(last.ranks.rank.length - 1, place));
    tellFocus();
    draw();
  }

  strip.addEventListener("keydown", (event) => {
    if (!last || !shown) return;
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: shown.columns,
      ArrowUp: -shown.columns,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) moveTo(focus + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") actions.select({ rank: last.ranks.rank[focus] });
    else return;
    event.preventDefault();
  });
  strip.addEventListener("pointermove", (event) => {
    const place = placeUnder(event, shown, last);
    strip.title = place === null ? "" : rankText(last.ranks, place);
  });
  strip.addEventListener("click", (event) => {
    const place = placeUnder(event, shown, last);
    if (place === null) return;
    moveTo(place);
    actions.select({ rank: last.ranks.rank[place] });
  });
  strip.addEventListener("focus", () => {
    tellFocus();
    draw();
  });
  strip.addEventListener("blur", draw);
  const resized = new ResizeObserver(draw);
  resized.observe(strip);

  return {
    update(picture, ui) {
      last = picture && {
        ranks: picture.ranks,
        theme: ui.theme,
        culprits: awaitedRanks(picture.hangs),
      };
      strip.hidden = !picture || picture.ranks.rank.length === 0;
      patch(earlier, picture && earlierHangsTree(picture));
      if (!picture) return patch(counts, null);
      const chosen = picture.ranks.rank.indexOf(ui.rank);
      if (chosen !== -1 && document.activeElement !== strip) focus = chosen;
      focus = Math.min(focus, Math.max(0, picture.ranks.rank.length - 1));
      strip.setAttribute("aria-valuemax", String(Math.max(0, picture.ranks.rank.length - 1)));
      patch(counts, countsTree(picture));
      patch(named, namedTree(picture, actions));
      tellFocus();
      return draw();
    },
    destroy: () => resized.disconnect(),
  };
}

/** How many ranks are in which state, how old the signs of life are, and who hangs. */
export function countsTree(picture) {
  const { ranks } = picture;
  if (!ranks.rank.length) return el("p", { class: "nothing" }, "No rank has sent a heartbeat.");
  const isOver = isKnown(picture.run.finished_at_s) || !picture.run.is_live;
  return [
    el(
      "ul",
      { class: "state-list" },
      countedStates(ranks).map(({ state, tone, mark, meaning, count }) =>
        el(
          "li",
          { key: state, title: meaning, "data-rank-state": tone },
          el("span", { class: "state-mark", "aria-hidden": "true" }, mark),
          " ",
          el("strong", { class: "number" }, formatNumber(count)),
          ` ${state}`,
        ),
      ),
      isOver ? null : ageTree("Heartbeat", agesOf(ranks.heartbeat_age_s)),
      isOver ? null : ageTree("Progress", agesOf(ranks.progress_age_s)),
    ),
    (picture.hangs || []).filter((hang) => hang.sentence).map((hang) => hangTree(hang)),
  ];
}

function ageTree(what, ages) {
  if (!ages) return null;
  const text = `${what}: median ${formatAge(ages.median)} ago, oldest ${formatAge(ages.oldest)}`;
  return el("li", { key: what, class: "muted" }, text);
}

function hangTree(hang) {
  return el(
    "p",
    { class: "hang", key: hang.group, "data-tone": hang.acknowledged ? "watch" : "bad", dir: "auto" },
    hang.group ? ["Group ", nameTree(hang.group), ": "] : null,
    asSentence(hang.sentence),
    hang.acknowledged ? " Acknowledged." : null,
  );
}

/** The ranks to look at, as a tree; null where all are well. */
export function namedTree(picture, actions) {
  const { ranks } = picture;
  const culprits = awaitedRanks(picture.hangs);
  const { places, left_out: leftOut } = graveRanks(ranks, MOST_NAMED_RANKS, culprits);
  if (!places.length) return null;
  return [
    el(
      "table",
      { class: "rows" },
      el("caption", { class: "visually-hidden" }, "Ranks that are lost, stuck or late"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["Rank", "State", "Heartbeat", "Progress", "Step", "Open section"].map((title) =>
            el("th", { scope: "col", class: SPARE.includes(title) && "spare" }, title),
          ),
        ),
      ),
      el("tbody", {}, places.map((place) => namedRow(ranks, place, culprits, actions))),
    ),
    leftOut ? el("p", { class: "nothing" }, `and ${formatNumber(leftOut)} more, in the strip`) : null,
  ];
}

function namedRow(ranks, place, culprits, actions) {
  const state = ranks.states[ranks.state[place]];
  const { mark, tone } = aboutState(state);
  const section = ranks.open_section[place];
  return el(
    "tr",
    { key: ranks.rank[place] },
    el("th", { scope: "row" }, rankTree(ranks.rank[place], actions), " ", el("small", {}, nameTree(nodeOf(ranks, place))), culprits.has(ranks.rank[place]) && el("span", { class: "label strong" }, "the others wait for it")),
    el("td", { class: "brief", "data-rank-state": tone }, el("span", { class: "state-mark", "aria-hidden": "true" }, mark), ` ${state}`),
    el("td", { class: "number spare" }, agoText(ranks.heartbeat_age_s[place])),
    el("td", { class: "number" }, agoText(ranks.progress_age_s[place])),
    el("td", { class: "number spare" }, formatNumber(ranks.step[place])),
    el("td", {}, section === null || section === undefined ? "none" : nameTree(ranks.open_sections[section])),
  );
}

function agoText(seconds) {
  return isKnown(seconds) ? `${formatAge(seconds)} ago` : "never";
}

function nodeOf(ranks, place) {
  return ranks.nodes[ranks.node[place]] ?? "";
}

/** One rank in a line, for a tool tip and for a screen reader. */
export function rankText(ranks, place) {
  const section = ranks.open_section[place];
  const parts = [
    `rank ${ranks.rank[place]}${nodeOf(ranks, place) ? ` on ${nodeOf(ranks, place)}` : ""}: ${ranks.states[ranks.state[place]] ?? "unknown"}`,
    `heartbeat ${agoText(ranks.heartbeat_age_s[place])}`,
  ];
  if (isKnown(ranks.step[place])) parts.push(`step ${formatNumber(ranks.step[place])}`);
  if (section !== null && section !== undefined) parts.push(`in ${ranks.open_sections[section]}`);
  return printableText(parts.join(", "));
}

// --- the strip ----------------------------------------------------------------------------------

function addedDiv(container, name) {
  const div = document.createElement("div");
  div.className = name;
  container.append(div);
  return div;
}

function addedStrip(container) {
  const strip = document.createElement("canvas");
  strip.className = "strip";
  strip.tabIndex = 0;
  strip.setAttribute("role", "slider");
  strip.setAttribute("aria-label", "All ranks; arrow keys move from rank to rank, Enter shows one");
  strip.setAttribute("aria-valuemin", "0");
  container.append(strip);
  return strip;
}

function placeUnder(event, shown, picture) {
  if (!shown || !picture) return null;
  const scale = textScale();
  const column = Math.floor(event.offsetX / scale / shown.width);
  const place = Math.floor(event.offsetY / scale / shown.height) * shown.columns + column;
  return column < shown.columns && place >= 0 && place < picture.ranks.rank.length ? place : null;
}

/** Draws all ranks; gives how they lie. Cost: O(ranks), 10,000 in a few milliseconds. */
function drawnStrip(strip, { ranks, culprits }, focus) {
  const lies = tilesOfStrip(ranks.rank.length, strip.clientWidth / textScale(), HIGHEST_STRIP);
  const draw = cleanSurface(strip, lies.total);
  const styles = getComputedStyle(strip);
  const colourOf = (tone) => styles.getPropertyValue(`--state-${tone}`);
  const colours = ranks.states.map((name) => colourOf(aboutState(name).tone));
  const unknown = colourOf("unknown");
  const gap = lies.height >= 4 ? 1 : 0;
  const at = (place) => [(place % lies.columns) * lies.width, Math.floor(place / lies.columns) * lies.height];
  ranks.state.forEach((code, place) => {
    draw.fillStyle = colours[code] || unknown;
    const [x, y] = at(place);
    draw.fillRect(x, y, lies.width - gap, lies.height - gap);
  });
  if (lies.width >= 16) drawLabels(draw, ranks, lies, at, styles);
  ranks.rank.forEach((rank, place) => {
    if (culprits.has(rank)) drawFrame(draw, at(place), lies, styles.getPropertyValue("--text"));
  });
  if (focus !== null) drawFrame(draw, at(focus), lies, styles.getPropertyValue("--focus"));
  return lies;
}

/** Whether two strips would look alike. Cost: O(ranks), a tenth of drawing them. */
function areSameRanks(one, other) {
  if (one === other) return true;
  if (!one || one.state.length !== other.state.length) return false;
  return (
    one.states.join() === other.states.join() &&
    one.state.every((code, place) => code === other.state[place] && one.rank[place] === other.rank[place])
  );
}

/** The canvas at the size of the screen's own pixels, empty. */
function cleanSurface(strip, height) {
  const scale = (window.devicePixelRatio || 1) * textScale();
  const wanted = [Math.round((strip.clientWidth * scale) / textScale()), Math.round(height * scale)];
  strip.style.height = `${height / 16}rem`;
  if (strip.width !== wanted[0]) strip.width = wanted[0];
  if (strip.height !== wanted[1]) strip.height = wanted[1];
  const draw = strip.getContext("2d");
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  draw.clearRect(0, 0, strip.clientWidth, height);
  return draw;
}

/** The number of the rank; of one that is not well its mark, so that colour is not needed. */
function drawLabels(draw, ranks, lies, at, styles) {
  draw.fillStyle = styles.getPropertyValue("--on-state");
  draw.font = `${Math.min(11, Math.floor(lies.width * 0.48))}px system-ui, sans-serif`;
  draw.textAlign = "center";
  draw.textBaseline = "middle";
  ranks.state.forEach((code, place) => {
    const { state, mark } = aboutState(ranks.states[code]);
    const number = String(ranks.rank[place]);
    const text = state === "ok" ? number : lies.width >= 40 ? `${mark} ${number}` : mark;
    const [x, y] = at(place);
    draw.fillText(text, x + (lies.width - 1) / 2, y + lies.height / 2);
  });
}

/** Around one tile, and large enough to be seen where tiles are tiny. */
function drawFrame(draw, [x, y], lies, colour) {
  draw.strokeStyle = colour;
  draw.lineWidth = 2;
  draw.strokeRect(x + 1, y + 1, Math.max(lies.width, 8) - 3, Math.max(lies.height, 8) - 3);
}
