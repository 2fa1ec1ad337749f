// Ranks down, sections across, the newest window: in what a slow rank is slow.

import { byteOf } from "./bytes.js";
import { chartChoice } from "./chart_dom.js";
import { createChartFrame, zoomButtons } from "./chart_frame.js";
import { countWords, rankWords, ranksWords, slowdownWords } from "./chart_words.js";
import { heatDetail, heatLevels } from "./heat_levels.js";
import { EMPTY_HEAT_GRID } from "./heat_view.js";
import { RANK_ORDERS, flaggedRanks, orderOfRanks, ranksByNumber, worstRanks } from "./rank_order.js";
import { visibleCells } from "./viewport.js";

const LAYOUT = { left: 74, top: 64, right: 34, bottom: 4 };
const HEIGHT = { least: 60, most: 400, row: 26 };
const NOTHING = "No window has been scored yet: the first one comes after some steps.";
const ALL = "all";

/** `update(picture, ui)`. A new picture costs all its cells once. */
export function createSectionHeat(container, actions) {
  const it = { order: "rank", shown: null, last: null };
  const frame = createChartFrame(container, {
    part: "sections",
    label: "Slowdown of each rank in each section of the newest window",
    layout: LAYOUT,
    hasMinimap: true,
    tableCaption: "The slowest ranks of the newest window, all sections together",
    on: {
      words: (found) => wordsOfSection(it.shown, found),
      pick: ({ row, column }) => {
        const section = it.shown.columns[column].name;
        actions.select({ rank: it.shown.keys[row], section: section === ALL ? "" : section });
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
    frame.table.update(worstRanks(picture));
    redo();
  };
  return { update, destroy: frame.destroy };
}

/** The newest window as one column for all sections together and one for each. */
function columnsOfPicture(picture) {
  const { overall, by_section: bySection } = picture.slowdowns ?? { overall: [], by_section: [] };
  const together = { name: ALL, kind: "all sections together", values: overall ?? [] };
  const each = (picture.sections ?? []).map(({ name, kind }, i) => ({ name, kind, values: bySection?.[i] ?? [] }));
  return [together, ...each];
}

function refreshSections(frame, it, picture, ui) {
  const columns = columnsOfPicture(picture);
  const hasData = columns.some(({ values }) => values.some((value) => value !== null));
  const known = ranksByNumber(picture);
  const flagged = flaggedRanks(picture);
  const newest = {
    ranks: picture.ranks.rank,
    columns: [{}],
    bytes: Uint8Array.from(picture.ranks.rank, (_, i) => byteOf(columns[0].values[i])),
  };
  const places = orderOfRanks(it.order, newest, known, flagged, ui.rank ?? null);
  const keys = places.map((place) => newest.ranks[place]);
  const isOtherOrder = it.shown !== null && it.shown.order !== it.order;
  it.shown = { order: it.order, keys, places, columns, known, flagged };
  const grid = hasData && keys.length ? sectionGrid(it.shown, ui) : EMPTY_HEAT_GRID;
  const tall = Math.min(HEIGHT.most, Math.max(HEIGHT.least, grid.rows * HEIGHT.row));
  frame.body.style.height = `${tall + LAYOUT.top + LAYOUT.bottom}px`;
  frame.body.dataset.large = String(grid.rows > 40);
  frame.stage.dataset.empty = grid.rows === 0 ? (hasData ? "No rank is flagged." : NOTHING) : "";
  frame.heat.setGrid(grid, isOtherOrder);
}

function sectionGrid({ keys, places, columns, flagged, known, order }, ui) {
  const rowOf = keys.indexOf(ui.rank ?? null);
  const columnOf = ui.section ? columns.findIndex(({ name }, i) => i > 0 && name === ui.section) : 0;
  const flaggedRows = [];
  keys.forEach((rank, row) => flagged.has(rank) && flaggedRows.push(row));
  const nodeAt = (row) => known.get(keys[row])?.node ?? "";
  return {
    ...EMPTY_HEAT_GRID,
    rows: keys.length,
    columns: columns.length,
    levels: columns.map(({ values }) => heatLevels(Uint8Array.from(places, (place) => byteOf(values[place])))),
    rowKeys: keys,
    columnKeys: columns.map(({ name }, i) => `${i}:${name}`),
    rowName: (row) => (order === "node" && nodeAt(row) ? `${nodeAt(row)} · ${keys[row]}` : `rank ${keys[row]}`),
    columnName: (column) => columns[column].name,
    exactAt: (row, column) => columns[column].values[places[row]],
    flaggedRows,
    selectedRow: rowOf < 0 ? null : rowOf,
    selectedColumn: columnOf < 0 ? null : columnOf,
    columnBreaks: [1],
    isSlanted: true,
    mostCellWidth: 110,
    mostCellHeight: 26,
  };
}

function wordsOfSection({ keys, places, columns, known, flagged }, { row, column, ranks }) {
  const rank = keys[row];
  const { name, kind, values } = columns[column];
  const where = column === 0 ? "all sections" : name;
  return [
    `${rankWords(rank, known.get(rank)?.node)}, ${where}: ${slowdownWords(values[places[row]])}`,
    column === 0 ? "" : `${kind} section`,
    ranks > 1 ? `the slowest of ${ranksWords(ranks)} in this line` : "",
    flagged.has(rank) ? `flagged: ${flagged.get(rank)}` : "",
  ];
}

function sayShown(container, frame, it, { view, bounds, ratio, grid }) {
  const cells = visibleCells(view, bounds);
  const keys = grid.rows ? it.shown.keys : [];
  const facts = { firstRank: keys[cells.firstRow] ?? "", lastRank: keys[cells.endRow - 1] ?? "", columns: grid.columns };
  for (const [name, value] of Object.entries(facts)) {
    if (container.dataset[name] !== String(value)) container.dataset[name] = value;
  }
  const { rows } = heatDetail(view, ratio);
  const many = rows > 1 ? ` Each line shows the slowest of ${ranksWords(rows)}.` : "";
  const text = keys.length ? `${countWords(cells.endRow - cells.firstRow)} of ${ranksWords(keys.length)}.${many}` : "";
  if (frame.note.textContent !== text) frame.note.textContent = text;
}
