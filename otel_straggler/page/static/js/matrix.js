// Pipeline stages down, data ranks across: the pattern of the heat names the cause.

import { byteOf } from "./bytes.js";
import { chartElement } from "./chart_dom.js";
import { createChartFrame } from "./chart_frame.js";
import { rankWords, slowdownWords } from "./chart_words.js";
import { heatDetail, heatLevels } from "./heat_levels.js";
import { EMPTY_HEAT_GRID } from "./heat_view.js";
import { createPatternLegend } from "./pattern_legend.js";
import { factsOfRanks } from "./rank_order.js";

const MATRIX_LAYOUT = { left: 66, top: 24, right: 2, bottom: 4 };
const MATRIX_HEIGHT = { most: 380, row: 38 };
/** What counts as hot: so much slower (less if the pattern says that there is something), and half as far from even as the hottest. */
const LEAST_HOT_EXCESS = { named: 0.03, otherwise: 0.05 };
const MOST_HOT = 100;
/** More workers than these in the only row are wrapped into a grid. */
const LONGEST_ROW = 16;
const MATRIX_NOTHING = "Nothing is known of the ranks yet.";

/** `update(picture, ui)`; `data-pattern`, `data-hot` and `data-silent` ("stage,data;...") of the container tell what is seen. */
export function createMatrix(container, actions) {
  const it = { cells: null, picture: null, rank: null };
  const frame = createChartFrame(container, {
    part: "matrix",
    label: "Slowdown of each worker by pipeline stage and data rank",
    layout: MATRIX_LAYOUT,
    marks: ["silent"],
    hasMinimap: false,
    tableCaption: "The slowest workers",
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
    sentence.textContent = heat.pattern_text ?? "";
    legend.update(heat.pattern);
    container.dataset.pattern = heat.pattern;
    container.dataset.hot = it.cells.hot;
    container.dataset.silent = heat.silent.map((place) => place.join(",")).join(";");
    frame.table.update(factsOfRanks(picture).worst);
    const grid = it.cells.rows ? matrixGrid(it.cells, ui.rank) : EMPTY_HEAT_GRID;
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

/** Cells, their levels and which of them are hot. Cost: all cells. */
function cellsOfPicture(picture) {
  const cells = placedCells(picture);
  const levels = [];
  for (let column = 0; column < cells.columns; column += 1) {
    const bytes = new Uint8Array(cells.rows);
    for (let row = 0; row < cells.rows; row += 1)
      bytes[row] = byteOf(cells.at(row, column)?.slowdown);
    levels.push(heatLevels(bytes));
  }
  return { ...cells, levels, hot: hotCells(cells, picture.heat.pattern) };
}

/**
 * `{rows, columns, count, rowName, columnName, corner, isRanks, silent, placeOfRank, at}`; a place is
 * row * columns + column. `at` gives `{stage, data, slowdown, rank, ranks}`, `rank` the slowest of
 * the ranks (tensor and other dimensions) that share a cell.
 */
function placedCells(picture) {
  const { cells, silent } = picture.heat;
  const shape = shapeOf(picture);
  const found = new Map();
  const put = (stage, data, slowdown) => {
    const place = shape.placeOf(stage, data);
    if (!found.has(place)) found.set(place, { stage, data, slowdown, ranks: [] });
  };
  for (const [stage, data, slowdown] of cells) put(stage, data, slowdown);
  for (const [stage, data] of silent) put(stage, data, null);
  return {
    ...shape,
    placeOfRank: giveRanks(picture, found, shape),
    silent: new Set(silent.map(([stage, data]) => shape.placeOf(stage, data))),
    known: factsOfRanks(picture).known,
    at: (row, column) => found.get(row * shape.columns + column),
  };
}

/** A row for each stage; the one row of a run without stages is wrapped if it is long. */
function shapeOf(picture) {
  const { stages, data_ranks: dataRanks } = picture.heat;
  const [rowOf, columnOf] = [placesOf(stages), placesOf(dataRanks)];
  const isRanks = !picture.ranks.dp && !picture.ranks.pp;
  if (stages.length > 1 || dataRanks.length <= LONGEST_ROW) {
    return {
      rows: dataRanks.length ? stages.length : 0,
      columns: dataRanks.length,
      count: stages.length * dataRanks.length,
      isRanks,
      rowName: (row) => (isRanks ? "ranks" : `stage ${stages[row]}`),
      columnName: (column) => String(dataRanks[column]),
      corner: isRanks ? "rank" : "data rank",
      placeOf: (stage, data) => rowOf.get(stage) * dataRanks.length + columnOf.get(data),
    };
  }
  return wrappedShape(picture, dataRanks, columnOf, isRanks);
}

/** One row, wrapped where nodes end if they are all of one size. */
function wrappedShape(picture, dataRanks, columnOf, isRanks) {
  const perNode = isRanks ? ranksPerNode(picture.ranks) : 0;
  const columns = wrapWidth(dataRanks.length, perNode || 8);
  const { known } = factsOfRanks(picture);
  const nameOf = (row) => {
    const first = dataRanks[row * columns];
    return columns === perNode
      ? (known.get(first)?.node ?? `rank ${first}`)
      : `${isRanks ? "rank" : "data"} ${first}`;
  };
  return {
    rows: Math.ceil(dataRanks.length / columns),
    columns,
    count: dataRanks.length,
    isRanks,
    rowName: nameOf,
    columnName: (column) => `+${column}`,
    corner: isRanks ? "rank" : "data rank",
    placeOf: (_, data) => columnOf.get(data),
  };
}

function placesOf(values) {
  return new Map(values.map((value, place) => [value, place]));
}

/** Tells each cell its ranks and the slowest of them; the answer is the place of each rank. */
function giveRanks(picture, found, { isRanks, placeOf }) {
  const { rank: ranks, dp, pp } = picture.ranks;
  const overall = picture.slowdowns?.overall ?? [];
  const placeOfRank = new Map();
  ranks.forEach((rank, i) => {
    const place = isRanks ? placeOf(0, rank) : placeOf(pp?.[i] ?? 0, dp?.[i] ?? 0);
    const cell = found.get(place);
    if (!cell) return;
    placeOfRank.set(rank, place);
    cell.ranks.push(rank);
    const slowdown = overall[i] ?? 0;
    if (cell.rank === undefined || slowdown > cell.worst)
      Object.assign(cell, { rank, worst: slowdown });
  });
  return placeOfRank;
}

/** Ranks of each node if there are as many on all (the last may have fewer), else 0. */
function ranksPerNode({ node }) {
  const counts = new Map();
  for (const index of node ?? []) counts.set(index, (counts.get(index) ?? 0) + 1);
  const sizes = [...counts.values()];
  return sizes.length > 1 && sizes.slice(0, -1).every((size) => size === sizes[0]) ? sizes[0] : 0;
}

/** A multiple of the ranks of a node, so that the grid is about half as high as it is wide. */
function wrapWidth(count, perNode) {
  if (count <= perNode * 12) return perNode;
  return perNode * Math.max(1, Math.round(Math.sqrt(count * 2.5) / perNode));
}

/** "stage,data;stage,data" of the hot cells, the hottest first, at most 100; "" if the heat is even. */
function hotCells(cells, pattern) {
  if (pattern === "even") return "";
  const found = [];
  for (let row = 0; row < cells.rows; row += 1) {
    for (let column = 0; column < cells.columns; column += 1) {
      const cell = cells.at(row, column);
      if (cell?.slowdown) found.push(cell);
    }
  }
  const hottest = found.reduce((most, { slowdown }) => Math.max(most, slowdown), 1);
  const excess = LEAST_HOT_EXCESS[pattern.startsWith("hot_") ? "named" : "otherwise"];
  const least = 1 + Math.max(excess, (hottest - 1) / 2);
  const hot = found
    .filter(({ slowdown }) => slowdown >= least)
    .sort((a, b) => b.slowdown - a.slowdown);
  return hot
    .slice(0, MOST_HOT)
    .map(({ stage, data }) => `${stage},${data}`)
    .join(";");
}

function matrixGrid(cells, rank) {
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
    hatched: cells.silent,
    cells: cells.count,
    markedCell: cells.placeOfRank.get(rank) ?? null,
    mostCellWidth: 64,
    mostCellHeight: MATRIX_HEIGHT.row,
  };
}

function wordsOfWorker(cells, { row, column, ranks }) {
  const cell = cells.at(row, column);
  if (!cell) return ["no worker", "", ""];
  const who = cell.rank === undefined ? "" : rankWords(cell.rank, cells.known.get(cell.rank)?.node);
  const place = cells.isRanks ? who : `stage ${cell.stage}, data rank ${cell.data}`;
  const isSilent = cells.silent.has(row * cells.columns + column);
  return [
    `${place}: ${isSilent ? "silent" : slowdownWords(cell.slowdown)}`,
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

function sayDetail(note, { rows, columns }, grid) {
  const cells = rows * columns;
  const text = cells > 1 && grid.rows ? `Each mark shows the hottest of ${cells} workers.` : "";
  if (note.textContent !== text) note.textContent = text;
}
