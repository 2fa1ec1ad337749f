// A grid of cells on a canvas that one can pan, zoom, point at and walk through with keys:
// what the three charts have in common.

import { heatPixels, heatStyles, readHeatPalette } from "./colours.js";
import { watchTheme } from "./chart_dom.js";
import { heatActions } from "./heat_actions.js";
import { drawHeat } from "./heat_draw.js";
import { listenToHeat } from "./heat_input.js";
import { heatDetail, worstUnder } from "./heat_levels.js";
import { createHeatPatterns, createHeatScratch, createHeatSurface } from "./heat_surface.js";
import {
  canPan,
  clampNumber,
  clampView,
  fitView,
  fitsOf,
  showsNewest,
  slotsFor,
} from "./viewport.js";

/** A pointer that rests on a chart for longer has been forgotten there. */
const LONGEST_HOLD_MS = 60_000;

/** A grid without cells; what `setGrid` is given has all of these. */
export const EMPTY_HEAT_GRID = {
  rows: 0,
  columns: 0,
  levels: [], // per column, of heatLevels; null where nothing is known
  rowKeys: [], // what a row is, however rows are ordered
  columnKeys: [], // what a column is, however many have gone before it
  rowName: () => "",
  columnName: () => "",
  columnKind: () => "", // below the name, where there is room
  columnLabelRoom: 70, // pixels from one label to the next
  corner: "",
  flaggedRows: [], // ascending
  suspectRows: new Set(), // those of them that are only suspected
  flaggedCells: new Map(), // row * columns + column of a flagged rank -> whether it is sure
  isRanking: false, // rows stand by how they do, so that one looks at places, not at rows
  selectedRow: null,
  selectedColumn: null,
  markedCell: null, // row * columns + column of the chosen rank
  startCell: null, // where keys begin, if not in the first row that is chosen or flagged
  rowBreaks: [],
  columnBreaks: [],
  hatched: new Set(), // row * columns + column
  cells: null, // how many there are, row after row, if the last row is not full
  hasNamesOnTop: false, // columns have names, not numbers
  layoutFor: null, // width -> gutters, where they depend on it
  hasSlots: false, // room for columns to come
  mostCellWidth: 60,
  mostCellHeight: 30,
};

/**
 * `on` has: words(found) -> lines of the tooltip, pick(found), changed(state) after each draw.
 * `found` is `{row, column, byte, ranks}`, the worst cell of those painted as one.
 * `layout` are the gutters around the plot.
 */
export function createHeatView({ host, canvas, tooltip, spoken, layout, on }) {
  const it = {
    grid: EMPTY_HEAT_GRID,
    view: null,
    bounds: null,
    layout,
    palette: null,
    pixels: null,
    styles: null,
    patterns: null,
    scratch: createHeatScratch(),
    names: new Map(),
    hover: null,
    focus: null,
    isFocused: false,
    isPointed: false,
    pointedAt_ms: 0,
    ratio: 1,
    scale: 1,
    draws: 0,
  };
  const draw = (context, size) => {
    if (!it.view) return;
    if (!it.palette) Object.assign(it, coloursOf(host, context));
    it.draws += 1;
    drawHeat(Object.assign(it, { context, ratio: size.ratio }));
    const { across, down } = canPan(it.view, it.bounds);
    const touch = across || down ? "none" : "pan-y";
    if (canvas.style.touchAction !== touch) canvas.style.touchAction = touch;
    on.changed(it);
  };
  const resized = (size) => {
    it.patterns = it.palette = null; // patterns depend on the density of pixels
    Object.assign(it, { ratio: size.ratio, scale: size.scale });
    rebound(it, size);
  };
  const surface = createHeatSurface(host, canvas, draw, resized);
  const show = (view) => {
    const hasMoved =
      it.view === null || Object.keys(view).some((name) => view[name] !== it.view[name]);
    it.view = view;
    if (hasMoved) surface.schedule();
    return hasMoved;
  };
  const found = (cell) =>
    worstUnder(it.grid.levels, it.grid.rows, heatDetail(it.view, it.ratio), cell.row, cell.column);
  const actions = heatActions({ it, show, found, surface, tooltip, spoken, on });
  const stopInput = listenToHeat(canvas, actions, () => surface.state.scale);
  const stopTheme = watchTheme(() => {
    it.palette = null;
    surface.schedule();
  });
  const setGrid = (grid, isOtherOrder = false) => {
    const before = it.grid;
    it.grid = grid;
    it.names.clear();
    surface.measure();
    if (it.bounds && surface.state.width) moveToGrid(it, before, surface.state, isOtherOrder);
    surface.schedule();
  };
  const destroy = () => [stopInput, stopTheme, surface.destroy].forEach((stop) => stop());
  return { it, actions, setGrid, show, destroy };
}

function coloursOf(host, context) {
  const palette = readHeatPalette(host);
  return {
    palette,
    pixels: heatPixels(palette),
    styles: heatStyles(palette),
    patterns: createHeatPatterns(context, palette),
  };
}

function boundsOf(it, size) {
  const { grid } = it;
  if (grid.layoutFor) it.layout = grid.layoutFor(size.width);
  const { layout } = it;
  return {
    columns: grid.columns,
    rows: grid.rows,
    slots: grid.hasSlots ? slotsFor(grid.columns) : grid.columns,
    width: Math.max(1, size.width - layout.left - layout.right),
    height: Math.max(1, size.height - layout.top - layout.bottom),
    mostCellWidth: grid.mostCellWidth,
    mostCellHeight: grid.mostCellHeight,
  };
}

/** After a change of size: what was fitted is fitted again, the rest stays where it is. */
function rebound(it, size) {
  const fits = it.view ? fitsOf(it.view, it.bounds) : { across: true, down: true };
  it.bounds = boundsOf(it, size);
  const fitting = fitView(it.bounds);
  const view = { ...(it.view ?? fitting) };
  if (fits.across) view.cellWidth = fitting.cellWidth;
  if (fits.down) view.cellHeight = fitting.cellHeight;
  it.view = clampView(view, it.bounds);
}

/** Whether somebody points at the chart, and has done so lately, or walks through it with keys. */
export function isHeatHeld(it) {
  return it.isFocused || (it.isPointed && performance.now() - it.pointedAt_ms < LONGEST_HOLD_MS);
}

/**
 * Another grid: what one looks at stays in its place. Who looks at the newest column, and neither
 * points at the chart nor walks through it, goes along with the newest.
 */
function moveToGrid(it, before, size, isOtherOrder) {
  const isHeld = isHeatHeld(it);
  const isAtNewest = showsNewest(it.view, it.bounds);
  const fits = fitsOf(it.view, it.bounds);
  const gone = columnsGone(before, it.grid);
  it.bounds = boundsOf(it, size);
  const fitting = fitView(it.bounds);
  const view = { ...it.view, x: it.view.x - gone };
  if (fits.down || before.rows === 0) view.cellHeight = fitting.cellHeight;
  if (before.columns === 0 || (fits.across && !isHeld)) view.cellWidth = fitting.cellWidth;
  if (isAtNewest && !isHeld) view.x = it.grid.columns;
  if (isOtherOrder) view.y = 0;
  else if (!it.grid.isRanking) view.y += rowsShifted(before, it.grid, view.y);
  it.view =
    isHeld && gone > 0 ? { ...clampView(view, it.bounds), x: view.x } : clampView(view, it.bounds);
  it.hover = null;
  it.focus = movedFocus(it.focus, before, it.grid, gone);
}

/** How many columns have gone at the left (negative: have come there). */
function columnsGone(before, grid) {
  if (before.columns === 0) return 0;
  for (let column = 0; column < before.columns; column += 1) {
    const now = grid.columnKeys.indexOf(before.columnKeys[column]);
    if (now >= 0) return column - now;
  }
  return 0;
}

function rowsShifted(before, grid, y) {
  const top = Math.floor(y);
  if (before.rows === 0 || before.rowKeys[top] === grid.rowKeys[top]) return 0;
  const now = grid.rowKeys.indexOf(before.rowKeys[top]);
  return now < 0 ? 0 : now - top;
}

function movedFocus(focus, before, grid, gone) {
  if (!focus || grid.rows === 0 || grid.columns === 0) return null;
  const row = grid.rowKeys.indexOf(before.rowKeys[focus.row]);
  return {
    row: row < 0 ? clampNumber(focus.row, 0, grid.rows - 1) : row,
    column: clampNumber(focus.column - gone, 0, grid.columns - 1),
  };
}
