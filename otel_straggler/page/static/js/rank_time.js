// Ranks down, windows of steps across, colour = slowdown: who is slow, and since when.

import { MOST_TIMELINE_COLUMNS } from "./bytes.js";
import { chartButton, chartChoice } from "./chart_dom.js";
import { createChartFrame, zoomButtons } from "./chart_frame.js";
import {
  byteWords,
  clockWords,
  columnWords,
  countWords,
  rankWords,
  ranksWords,
  stepWords,
} from "./chart_words.js";
import { bytesAtPlaces, heatDetail, heatLevels } from "./heat_levels.js";
import { NOBODY_WORDS, aloneAmong } from "./lone_ranks.js";
import { printableText } from "./dom.js";
import { EMPTY_HEAT_GRID, isHeatHeld } from "./heat_view.js";
import { RANK_ORDERS, factsOfRanks, flaggedRowsOf, orderOfRanks } from "./rank_order.js";
import { slowSinceWords } from "./slow_since.js";
import { canPan, clampView, showsNewest, visibleCells } from "./viewport.js";

const RANK_TIME_LAYOUT = { left: 82, top: 4, right: 0, bottom: 24 };
const RANK_TIME_HEIGHT = { least: 96, most: 420, row: 26 };
const RANK_TIME_NOTHING = "No window has been scored yet: the first one closes after some steps.";
const NOBODY = "No rank is flagged.";

/**
 * `update(picture, ui, timeline)`, where the timeline is of `decodeTimeline` and `mergeTimelines`;
 * null while there is none. A new window costs its own column, another order all columns once.
 */
export function createRankTime(container, actions) {
  const it = { order: "rank", shown: null, cache: createColumnCache(), last: null, draws: 0 };
  const frame = createChartFrame(container, {
    part: "rank-time",
    label: "Slowdown of each rank in each window of steps",
    layout: RANK_TIME_LAYOUT,
    marks: ["flagged"],
    hasMinimap: true,
    tableCaption: "The slowest ranks of the newest window",
    tableColumn: "slow since",
    on: {
      words: (found) => wordsOfCell(it.shown, found),
      pick: (found) => actions.select({ rank: it.shown.rankAt(found.row) }),
      changed: (heat) => said(container, frame, newest, it, heat),
    },
  });
  const redo = () => it.last && refresh(frame, it, ...it.last);
  const section = chartChoice("section", (name) => actions.select({ section: name }));
  const order = chartChoice("order of ranks", (name) => {
    it.order = name;
    redo();
  });
  order.setOptions(RANK_ORDERS, it.order);
  const newest = chartButton("newest ▸", "go to the newest window", () => goToNewest(frame.heat));
  frame.tools.append(
    section.element,
    order.element,
    ...zoomButtons(frame.heat.actions, "ranks", "time"),
    newest,
  );
  const update = (picture, ui, timeline) => {
    it.last = [picture, ui, timeline];
    section.setOptions(sectionChoices(picture), ui.section ?? "");
    frame.table.update(factsOfRanks(picture).worst, (rank) => slowSinceWords(timeline, rank));
    redo();
  };
  const counts = () => ({ draws: frame.heat.it.draws, columnsBuilt: it.cache.built() });
  return { update, counts, destroy: frame.destroy };
}

function sectionChoices(picture) {
  const named = (picture.sections ?? []).map(({ name }) => ({ name, words: printableText(name) }));
  return [{ name: "", words: "all sections" }, ...named];
}

function refresh(frame, it, picture, ui, timeline) {
  const selected = ui.rank ?? null;
  const { known, flagged } = factsOfRanks(picture);
  const places = timeline ? orderOfRanks(it.order, timeline, known, flagged, selected) : [];
  const keys = places.map((place) => timeline.ranks[place]);
  const isHeld = isHeatHeld(frame.heat.it);
  const before = it.shown;
  const isOtherOrder = before !== null && before.order !== it.order;
  if (isHeld && !isOtherOrder && it.order === "worst" && isSameSet(before?.keys, keys)) {
    // who reads a list must not see it shuffled under the pointer
    places.splice(0, places.length, ...before.keys.map((rank) => timeline.ranks.indexOf(rank)));
    keys.splice(0, keys.length, ...before.keys);
  }
  it.shown = {
    order: it.order,
    keys,
    known,
    flagged,
    timeline,
    rankAt: (row) => keys[row],
    columns: timeline?.columns ?? [],
  };
  const grid = timeline && keys.length ? gridOf(it, places, selected) : EMPTY_HEAT_GRID;
  const rows = Math.min(
    RANK_TIME_HEIGHT.most,
    Math.max(RANK_TIME_HEIGHT.least, grid.rows * RANK_TIME_HEIGHT.row),
  );
  frame.setHeight(rows + RANK_TIME_LAYOUT.top + RANK_TIME_LAYOUT.bottom);
  frame.body.dataset.large = String(grid.rows > 100 || grid.columns > 240);
  frame.stage.dataset.empty =
    grid.rows === 0 ? (timeline?.columns.length ? NOBODY : RANK_TIME_NOTHING) : "";
  frame.heat.setGrid(grid, isOtherOrder);
}

function isSameSet(some, others) {
  if (!some || some.length !== others.length) return false;
  const all = new Set(some);
  return others.every((each) => all.has(each));
}

function gridOf(it, places, selected) {
  const { keys, timeline, flagged, known } = it.shown;
  const levels = it.cache.levelsOf(timeline, places, `${it.order}|${keys.length}`, keys);
  const rowOf = keys.indexOf(selected);
  const hasSteps = timeline.columns.some(({ first_step: first }) => first !== null);
  const isByNode = it.order === "node";
  const nodeAt = (row) => known.get(keys[row])?.node ?? "";
  const breaks = isByNode
    ? keys.map((_, row) => row).filter((row) => row && nodeAt(row) !== nodeAt(row - 1))
    : [];
  return {
    ...EMPTY_HEAT_GRID,
    rows: keys.length,
    columns: timeline.columns.length,
    levels,
    rowKeys: keys,
    columnKeys: timeline.columns.map(({ seq, at_s: at }) => `${seq}@${at}`),
    rowName: (row) =>
      isByNode && nodeAt(row) ? `${nodeAt(row)} · ${keys[row]}` : `rank ${keys[row]}`,
    columnName: (column) => columnWords(timeline.columns[column]),
    columnLabelRoom: 76,
    corner: hasSteps ? "step" : "time",
    ...flaggedRowsOf(keys, flagged),
    selectedRow: rowOf < 0 ? null : rowOf,
    rowBreaks: breaks,
    columnBreaks: missingBefore(timeline.columns),
    hasSlots: true,
    isRanking: it.order === "worst",
    layoutFor: () => ({ ...RANK_TIME_LAYOUT, left: isByNode ? 120 : RANK_TIME_LAYOUT.left }),
    mostCellHeight: 26,
    mostCellWidth: 90,
  };
}

/** Columns before which windows are missing. */
function missingBefore(columns) {
  const found = [];
  for (let i = 1; i < columns.length; i += 1)
    if (columns[i].seq !== columns[i - 1].seq + 1) found.push(i);
  return found;
}

/** Levels of columns, built once for each window and order. */
function createColumnCache() {
  let [kept, token, keptKeys, built] = [new Map(), "", [], 0];
  const levelsOf = (timeline, places, order, keys) => {
    const { run_id: run, group, section, ranks } = timeline;
    const wanted = [run, group, section, ranks.length, order].join("|");
    const isSameOrder =
      keptKeys.length === keys.length && keys.every((key, i) => key === keptKeys[i]);
    if (wanted !== token || !isSameOrder) kept = new Map();
    [token, keptKeys] = [wanted, keys];
    const now = new Map();
    timeline.columns.forEach(({ seq, at_s: at }, column) => {
      const key = `${seq}@${at}`;
      now.set(key, kept.get(key) ?? build(timeline, places, column));
    });
    kept = now;
    return [...now.values()];
  };
  const build = (timeline, places, column) => {
    built += 1;
    const start = column * timeline.ranks.length;
    return heatLevels(bytesAtPlaces(timeline.bytes, places, start));
  };
  return { levelsOf, built: () => built };
}

function wordsOfCell(shown, { row, column, byte, ranks }) {
  const rank = shown.rankAt(row);
  const { node, state } = shown.known.get(rank) ?? {};
  const window = shown.columns[column];
  const why = shown.flagged.get(rank)?.why;
  const isLone = ranks === 1 && isAloneIn(shown, column, rank);
  return [
    `${rankWords(rank, node)}, ${stepWords(window)}: ${isLone ? NOBODY_WORDS : byteWords(byte)}`,
    ranks > 1 ? `the slowest of ${ranksWords(ranks)} in this line` : "",
    window.first_step === null ? "" : clockWords(window.at_s),
    why ? `flagged: ${why}` : (state ?? ""),
  ];
}

function isAloneIn({ timeline, known }, column, rank) {
  const { ranks, bytes } = timeline;
  const start = column * ranks.length;
  const role = ranks.map((each) => known.get(each)?.role);
  return aloneAmong({ role }, bytes.subarray(start, start + ranks.length))(ranks.indexOf(rank));
}

/** What is in sight, as attributes, and as a sentence where lines stand for many ranks. */
function said(container, frame, newest, it, heat) {
  const { bounds, view, grid } = heat;
  const cells = visibleCells(view, bounds);
  const { keys } = it.shown ?? { keys: [] };
  const facts = {
    firstRank: keys[cells.firstRow] ?? "",
    lastRank: keys[cells.endRow - 1] ?? "",
    columns: grid.columns,
    order: it.order,
  };
  for (const [name, value] of Object.entries(facts)) {
    if (container.dataset[name] !== String(value)) container.dataset[name] = value;
  }
  const detail = heatDetail(view, heat.ratio);
  const many = detail.rows > 1 ? ` Each line shows the slowest of ${ranksWords(detail.rows)}.` : "";
  const ranksSeen = `${countWords(cells.endRow - cells.firstRow)} of ${ranksWords(keys.length)}`;
  const windowsSeen = `${cells.endColumn - cells.firstColumn} of ${grid.columns} window${grid.columns === 1 ? "" : "s"}`;
  const text = keys.length ? `${ranksSeen}, ${windowsSeen}.${many}` : "";
  if (frame.note.textContent !== text) frame.note.textContent = text;
  const isNewest =
    showsNewest(view, bounds) ||
    (!canPan(view, bounds).across && view.x >= 0 && cells.endColumn === grid.columns);
  if (newest.disabled !== isNewest) newest.disabled = isNewest;
}

function goToNewest({ it, show }) {
  show(clampView({ ...it.view, x: MOST_TIMELINE_COLUMNS * 10 }, it.bounds));
}
