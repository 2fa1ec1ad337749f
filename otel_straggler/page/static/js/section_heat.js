// Ranks down, sections across, the newest window: in what a slow rank is slow.

import { bytesOfSlowdowns } from "./bytes.js";
import { chartChoice, textScale } from "./chart_dom.js";
import { createChartFrame, zoomButtons } from "./chart_frame.js";
import { countWords, rankWords, ranksWords, slowdownWords } from "./chart_words.js";
import { bytesAtPlaces, heatDetail, heatLevels } from "./heat_levels.js";
import { printableText } from "./dom.js";
import { EMPTY_HEAT_GRID } from "./heat_view.js";
import { NOBODY_WORDS, aloneAmong } from "./lone_ranks.js";
import { RANK_ORDERS, factsOfRanks, flaggedRowsOf, orderOfRanks } from "./rank_order.js";
import { visibleCells } from "./viewport.js";

const GUTTERS = { left: 82, right: 2, bottom: 4, top: 38, isSlanted: false };
const SLANTED = { top: 14, longest: 170, steepness: Math.SQRT1_2 };
const LETTER_WIDTH = 6.8;
const SECTION_HEAT_HEIGHT = { least: 60, most: 520, row: 26 };
const SECTION_HEAT_NOTHING = "No window has been scored yet: the first one closes after some steps.";
const ALL = "all";

/** `update(picture, ui)`. A new picture costs all its cells once. */
export function createSectionHeat(container, actions) {
  const it = { order: "rank", shown: null, last: null };
  const frame = createChartFrame(container, {
    part: "sections",
    label: "Slowdown of each rank in each section of the newest window",
    layout: GUTTERS,
    marks: ["flagged"],
    hasMinimap: true,
    tableCaption: "The slowest ranks of the newest window, all sections together",
    tableColumn: "slowest in",
    on: {
      words: (found) => wordsOfSection(it.shown, found),
      pick: ({ row, column }) => {
        const section = column === 0 ? "" : it.shown.columns[column].name;
        actions.select({ rank: it.shown.keys[row], section });
      },
      changed: (heat) => sayShown(container, frame, it, heat),
    },
  });
  const redo = () => it.last && refreshSections(frame, it, ...it.last);
  const order = chartChoice("order of ranks", (name) => {
    it.order = name;
    redo();
  });
  order.setOptions(RANK_ORDERS, it.order);
  frame.tools.append(order.element, ...zoomButtons(frame.heat.actions, "ranks"));
  const update = (picture, ui) => {
    it.last = [picture, ui];
    redo();
    frame.table.update(factsOfRanks(picture).worst, (rank) => slowestInWords(it.shown, rank));
  };
  return { update, destroy: frame.destroy };
}

/** The newest window as one column for all sections together and one for each, with its bytes. */
function columnsOfPicture(picture, chosen) {
  const n = picture.ranks.rank.length;
  const { overall, by_section: bySection } = picture.slowdowns ?? {};
  const column = (name, kind, values) => ({
    name,
    words: printableText(name),
    kind: printableText(kind),
    values,
    bytes: bytesOfSlowdowns(values, n),
    isAlone: aloneAmong(picture.ranks, values),
  });
  const named = picture.sections ?? [];
  const each = named.map(({ name, kind }, i) => column(name, kind, bySection?.[i] ?? []));
  // Who waits less is no faster, and who waits more no slower: waiting is shown where it is asked for.
  const isWork = ({ name, kind }) => kind !== "wait" || name === chosen;
  const shown = named.some(isWork) ? each.filter((_, i) => isWork(named[i])) : each;
  return [column(ALL, "all compute and data sections", overall ?? []), ...shown];
}

function refreshSections(frame, it, picture, ui) {
  const before = it.shown;
  const isSame = before?.picture === picture && before.section === ui.section && before.order === it.order && it.order !== "flagged";
  it.shown = isSame ? before : shownOf(picture, it.order, ui);
  const { keys, hasData } = it.shown;
  const grid = hasData && keys.length ? sectionGrid(it.shown, ui) : EMPTY_HEAT_GRID;
  const tall = Math.min(
    SECTION_HEAT_HEIGHT.most,
    Math.max(SECTION_HEAT_HEIGHT.least, grid.rows * SECTION_HEAT_HEIGHT.row),
  );
  const { top, bottom } = grid.layoutFor?.(frame.stage.clientWidth / textScale()) ?? GUTTERS;
  frame.setHeight(tall + top + bottom);
  frame.body.dataset.large = String(grid.rows > 100);
  frame.stage.dataset.empty =
    grid.rows === 0 ? (hasData ? "No rank is flagged." : SECTION_HEAT_NOTHING) : "";
  frame.heat.setGrid(grid, before !== null && before.order !== it.order);
}

/** What is shown of a picture in an order. Cost: all its cells. */
function shownOf(picture, order, ui) {
  const columns = columnsOfPicture(picture, ui.section);
  const { known, flagged } = factsOfRanks(picture);
  const newest = { ranks: picture.ranks.rank, columns: [{}], bytes: columns[0].bytes };
  const places = orderOfRanks(order, newest, known, flagged, ui.rank ?? null);
  return {
    picture,
    section: ui.section,
    order,
    places,
    columns,
    known,
    flagged,
    hasData: columns.some(({ bytes }) => bytes.some(Boolean)),
    keys: places.map((place) => newest.ranks[place]),
    levels: columns.map(({ bytes }) => heatLevels(bytesAtPlaces(bytes, places))),
  };
}

function sectionGrid({ keys, places, columns, levels, flagged, known, order }, ui) {
  const rowOf = keys.indexOf(ui.rank ?? null);
  const columnOf = ui.section
    ? columns.findIndex(({ name }, i) => i > 0 && name === ui.section)
    : 0;
  const nodeAt = (row) => known.get(keys[row])?.node ?? "";
  return {
    ...EMPTY_HEAT_GRID,
    rows: keys.length,
    columns: columns.length,
    levels,
    rowKeys: keys,
    columnKeys: columns.map(({ name }, i) => `${i}:${name}`),
    rowName: (row) =>
      order === "node" && nodeAt(row) ? `${nodeAt(row)} · ${keys[row]}` : `rank ${keys[row]}`,
    columnName: (column) => columns[column].words,
    columnKind: (column) => (column === 0 ? "own work" : columns[column].kind),
    exactAt: (row, column) => exactOf(columns[column], places[row]),
    ...flaggedRowsOf(keys, flagged),
    selectedRow: rowOf < 0 ? null : rowOf,
    selectedColumn: columnOf < 0 ? null : columnOf,
    columnBreaks: [1],
    hasNamesOnTop: true,
    layoutFor: (width) => guttersFor(columns, width, order === "node"),
    mostCellWidth: 240,
    mostCellHeight: 26,
  };
}

/** What a cell shows as a number: nothing where there is nobody to be compared with. */
function exactOf({ values, isAlone }, place) {
  return isAlone(place) ? null : values[place];
}

/** "forward, 1.49x its peers": its own work that is farthest behind; waiting is no work. */
function slowestInWords({ picture, columns }, rank) {
  const place = picture.ranks.rank.indexOf(rank);
  const own = columns
    .slice(1)
    .filter(({ kind, isAlone }) => kind !== "wait" && !isAlone(place))
    .map(({ words, values }) => ({ words, slowdown: values[place] ?? null }))
    .filter(({ slowdown }) => slowdown !== null)
    .sort((one, other) => other.slowdown - one.slowdown);
  return own.length ? `${own[0].words}, ${slowdownWords(own[0].slowdown)}` : "unknown";
}

/** Names stand upright where the longest has room. */
export function guttersFor(columns, width, isByNode) {
  const left = isByNode ? 120 : GUTTERS.left;
  const longest = Math.max(8, ...columns.map(({ words }) => words.length)) * LETTER_WIDTH + 4;
  const isFlat = (width - left - GUTTERS.right) / columns.length >= longest;
  if (isFlat) return { ...GUTTERS, left };
  const room = Math.min(SLANTED.longest, longest) * SLANTED.steepness;
  return { ...GUTTERS, left, top: SLANTED.top + room, right: room * 0.9, isSlanted: true };
}

function wordsOfSection({ keys, places, columns, known, flagged }, { row, column, ranks }) {
  const rank = keys[row];
  const { words, kind, values, isAlone } = columns[column];
  const isLone = ranks === 1 && isAlone(places[row]);
  const times = isLone ? NOBODY_WORDS : slowdownWords(values[places[row]]);
  const where = column === 0 ? "all sections" : words;
  return [
    `${rankWords(rank, known.get(rank)?.node)}, ${where}: ${times}`,
    column === 0 ? "" : `${kind} section`,
    ranks > 1 ? `the slowest of ${ranksWords(ranks)} in this line` : "",
    flagged.has(rank) ? `flagged: ${flagged.get(rank).why}` : "",
  ];
}

function sayShown(container, frame, it, { view, bounds, ratio, grid }) {
  const cells = visibleCells(view, bounds);
  const keys = grid.rows ? it.shown.keys : [];
  const facts = {
    firstRank: keys[cells.firstRow] ?? "",
    lastRank: keys[cells.endRow - 1] ?? "",
    columns: grid.columns,
  };
  for (const [name, value] of Object.entries(facts)) {
    if (container.dataset[name] !== String(value)) container.dataset[name] = value;
  }
  const { rows } = heatDetail(view, ratio);
  const many = rows > 1 ? ` Each line shows the slowest of ${ranksWords(rows)}.` : "";
  const text = keys.length
    ? `${countWords(cells.endRow - cells.firstRow)} of ${ranksWords(keys.length)}.${many}`
    : "";
  if (frame.note.textContent !== text) frame.note.textContent = text;
}
