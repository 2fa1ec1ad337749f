// Pipeline stages down, data ranks across: the pattern of the heat names the cause.

import { chartElement } from "./chart_dom.js";
import { createChartFrame } from "./chart_frame.js";
import { rankWords, stepTimesWords, slowdownWords } from "./chart_words.js";
import { printableText } from "./dom.js";
import { heatDetail } from "./heat_levels.js";
import { EMPTY_HEAT_GRID } from "./heat_view.js";
import { cellsOfPicture } from "./matrix_cells.js";
import { createPatternLegend } from "./pattern_legend.js";
import { factsOfRanks } from "./rank_order.js";

const MATRIX_LAYOUT = { left: 66, top: 24, right: 2, bottom: 4 };
const MATRIX_HEIGHT = { most: 380, row: 44 };
/** Of the chart of ranks over time: a rank, and the ranks after which it grows no more. */
const RANK_CHART_HEIGHT = { row: 26, rows: 16 };
const PATTERNS_HEIGHT = 200;
/** What the figures in the cells are ratios of. */
const BASE_WORDS = {
  step: "Step time if only this worker were as it is / if all took the mean",
  peers: "Own time of every worker / its peers",
};
const MATRIX_NOTHING = "No rank has reported yet.";

/**
 * `update(picture, ui)`; `data-pattern`, `data-hot` and `data-silent` ("stage,data;...") of the
 * container tell what is seen.
 */
export function createMatrix(container, actions) {
  const it = { cells: null, picture: null, rank: null };
  const frame = createChartFrame(container, {
    part: "matrix",
    label: "Slowdown of each worker by pipeline stage and data rank",
    layout: MATRIX_LAYOUT,
    marks: ["flagged", "silent"],
    hasMinimap: false,
    tableCaption: "The slowest workers",
    tableColumn: "worker",
    on: {
      words: (found) => wordsOfWorker(it.cells, found),
      pick: ({ row, column }) => {
        const rank = it.cells.at(row, column)?.rank;
        if (rank !== undefined) actions.select({ rank });
      },
      changed: ({ view, ratio, grid }) => sayDetail(frame.note, heatDetail(view, ratio), grid),
    },
  });
  const sentence = chartElement("p", "pattern-sentence", { "data-field": "pattern-text" });
  const aside = chartElement("div", "pattern-aside", {}, sentence);
  frame.body.after(aside);
  const legend = createPatternLegend(aside);
  const update = (picture, ui) => {
    if (it.picture !== picture) it.cells = cellsOfPicture(picture);
    const isOther = it.picture !== picture || it.rank !== ui.rank;
    Object.assign(it, { picture, rank: ui.rank });
    if (!isOther) return;
    const { heat } = picture;
    sentence.textContent = printableText(heat.pattern_text ?? "");
    legend.update(heat.pattern, isMuchLower(it.cells));
    container.dataset.pattern = heat.pattern;
    container.dataset.hot = it.cells.hot;
    container.dataset.silent = heat.silent.map((place) => place.join(",")).join(";");
    frame.table.update(factsOfRanks(picture).worst, (rank) => placeWords(it.cells, rank));
    const base = container.closest(".card")?.querySelector(".card-head p");
    const where = heat.section ? `, in ${printableText(heat.section)}` : "";
    if (base) base.textContent = `${BASE_WORDS[heat.base] ?? BASE_WORDS.peers}${where}`;
    const { flagged } = factsOfRanks(picture);
    const grid = it.cells.rows ? matrixGrid(it.cells, ui.rank, flagged) : EMPTY_HEAT_GRID;
    frame.setHeight(
      Math.min(MATRIX_HEIGHT.most, Math.max(1, grid.rows) * MATRIX_HEIGHT.row) +
        MATRIX_LAYOUT.top +
        MATRIX_LAYOUT.bottom,
    );
    frame.stage.dataset.empty = grid.rows ? "" : MATRIX_NOTHING;
    frame.heat.setGrid(grid);
  };
  const destroy = () => {
    aside.remove();
    frame.destroy();
  };
  return { update, destroy };
}

/** Whether it is so much lower than the chart of ranks next to it that the patterns fit below. */
function isMuchLower({ rows, count }) {
  const height = Math.min(MATRIX_HEIGHT.most, rows * MATRIX_HEIGHT.row);
  return RANK_CHART_HEIGHT.row * Math.min(count, RANK_CHART_HEIGHT.rows) - height > PATTERNS_HEIGHT;
}

/** Places of flagged ranks, each with whether it is more than suspected. */
function flaggedPlaces(cells, flagged) {
  const places = new Map();
  for (const [rank, { isSure }] of flagged) {
    const place = cells.placeOfRank.get(rank);
    if (place !== undefined) places.set(place, isSure || places.get(place) === true);
  }
  return places;
}

function matrixGrid(cells, rank, flagged) {
  const { rows, columns, levels } = cells;
  return {
    ...EMPTY_HEAT_GRID,
    rows,
    columns,
    levels,
    rowKeys: Array.from({ length: rows }, (_, row) => cells.rowName(row)),
    columnKeys: Array.from({ length: columns }, (_, column) => cells.columnName(column)),
    rowName: cells.rowName,
    columnName: cells.columnName,
    columnLabelRoom: 30,
    corner: cells.corner,
    exactAt: (row, column) => cells.at(row, column)?.slowdown ?? null,
    flaggedCells: flaggedPlaces(cells, flagged),
    hatched: cells.silent,
    cells: cells.count,
    markedCell: cells.placeOfRank.get(rank) ?? null,
    startCell: cells.placeOfRank.get(rank) ?? gravestCell(cells),
    mostCellWidth: 96,
    mostCellHeight: MATRIX_HEIGHT.row,
  };
}

/** The first that is silent, else the hottest. */
function gravestCell({ rows, columns, silent, at }) {
  if (silent.size) return Math.min(...silent);
  let [gravest, most] = [0, -Infinity];
  for (let place = 0; place < rows * columns; place += 1) {
    const slowdown = at(Math.floor(place / columns), place % columns)?.slowdown ?? -Infinity;
    if (slowdown > most) [gravest, most] = [place, slowdown];
  }
  return gravest;
}

function wordsOfWorker(cells, { row, column, ranks }) {
  const cell = cells.at(row, column);
  if (!cell) return ["no worker", "", ""];
  const who = cell.rank === undefined ? "" : rankWords(cell.rank, cells.known.get(cell.rank)?.node);
  const place = cells.isRanks ? who : `stage ${cell.stage}, data rank ${cell.data}`;
  const isSilent = cells.silent.has(row * cells.columns + column);
  return [
    `${place}: ${isSilent ? "silent" : cellWords(cells, cell)}`,
    !cells.isRanks && who
      ? cell.ranks.length > 1
        ? `slowest of its ${cell.ranks.length} ranks: ${who}`
        : who
      : "",
    isSilent && cells.known.get(cell.rank)?.state
      ? `state: ${cells.known.get(cell.rank).state}`
      : "",
    ranks > 1 ? "the hottest of the cells under one pixel" : "",
  ];
}

function cellWords({ base }, { slowdown }) {
  return base === "step" ? stepTimesWords(slowdown) : slowdownWords(slowdown);
}

function placeWords(cells, rank) {
  const place = cells.placeOfRank.get(rank);
  const cell = place === undefined ? null : cells.at(Math.floor(place / cells.columns), place % cells.columns);
  if (!cell || cells.isRanks) return "not reported";
  return `stage ${cell.stage}, data rank ${cell.data}`;
}

function sayDetail(note, { rows, columns }, grid) {
  const cells = rows * columns;
  const text = cells > 1 && grid.rows ? `Each mark shows the hottest of ${cells} workers.` : "";
  if (note.textContent !== text) note.textContent = text;
}
