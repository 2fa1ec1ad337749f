// What the hand and the keys do to a heat view.

import { printableText } from "./dom.js";
import { heatDetail } from "./heat_levels.js";
import { cellAt, clampNumber, fitView, panView, revealCell, zoomView } from "./viewport.js";

/** What input does; places come in pixels of the canvas and go on in pixels of the plot. */
export function heatActions({ it, show, found, surface, tooltip, spoken, on }) {
  const inPlot = (x, y) => [x - it.layout.left, y - it.layout.top];
  const middle = () => [it.bounds.width / 2 + it.layout.left, it.bounds.height / 2 + it.layout.top];
  const say = (cell, x, y) => tooltip.show(on.words(found(cell)), x * it.scale, y * it.scale);
  const sayFocus = () => {
    spoken.textContent = printableText(on.words(found(it.focus)).filter(Boolean).join(", "));
    const x = it.layout.left + (it.focus.column + 1 - it.view.x) * it.view.cellWidth;
    say(it.focus, x, it.layout.top + (it.focus.row + 1 - it.view.y) * it.view.cellHeight);
  };
  const hoverOver = (cell) => {
    const isSame = cell?.row === it.hover?.row && cell?.column === it.hover?.column;
    it.hover = cell;
    if (!isSame) surface.schedule();
  };
  const pointAt = (x, y) => {
    it.isPointed = x !== null;
    it.pointedAt_ms = performance.now();
    const cell = x === null || !it.view ? null : cellAt(it.view, it.bounds, ...inPlot(x, y));
    const worst = cell && found(cell);
    hoverOver(worst && { row: worst.row, column: worst.column });
    if (cell) say(cell, x, y);
    else tooltip.hide();
  };
  const pickAt = (x, y) => {
    const cell = cellAt(it.view, it.bounds, ...inPlot(x, y));
    if (!cell) return;
    it.focus = cell;
    on.pick(found(cell));
  };
  const zoomBy = (factorX, factorY, x, y) => {
    const at = x === undefined ? middle() : [x, y];
    return show(zoomView(it.view, it.bounds, factorX, factorY, ...inPlot(...at)));
  };
  const zoomRows = (factor, x, y) => {
    const fitting = fitView(it.bounds);
    const canZoomRows = fitting.cellHeight < it.bounds.mostCellHeight * 0.999;
    return canZoomRows ? zoomBy(1, factor, x, y) : zoomBy(factor, 1, x, y);
  };
  const startFocus = () => {
    const { grid } = it;
    if (it.focus || grid.rows === 0 || grid.columns === 0) return;
    if (grid.startCell !== null) {
      it.focus = { row: Math.floor(grid.startCell / grid.columns), column: grid.startCell % grid.columns };
      return;
    }
    const row = grid.selectedRow ?? grid.flaggedRows[0] ?? 0;
    it.focus = { row, column: grid.selectedColumn ?? (grid.hasSlots ? grid.columns - 1 : 0) };
  };
  const moveFocus = (rows, columns) => {
    const { grid } = it;
    startFocus();
    if (!it.focus) return;
    it.isFocused = true;
    const detail = heatDetail(it.view, it.ratio);
    it.focus = {
      row: stepped(it.focus.row, rows, detail.rows, grid.rows),
      column: stepped(it.focus.column, columns, detail.columns, grid.columns),
    };
    it.view = revealCell(it.view, it.bounds, it.focus.row, it.focus.column);
    surface.schedule();
    sayFocus();
  };
  return {
    pointAt,
    pickAt,
    zoomBy,
    zoomRows,
    moveFocus,
    panBy: (x, y) => show(panView(it.view, it.bounds, x, y)),
    fit: () => show(fitView(it.bounds)),
    pickFocus: () => it.focus && on.pick(found(it.focus)),
    leaveFocus: () => {
      if (!it.focus) return false;
      it.focus = null;
      it.isFocused = false;
      tooltip.hide();
      surface.schedule();
      return true;
    },
    focus: (isByKeys) => {
      it.isFocused = isByKeys;
      surface.schedule();
      if (!isByKeys || !it.view) return;
      startFocus();
      if (it.focus) moveFocus(0, 0); // says where the keys stand
    },
    blur: () => {
      it.isFocused = false;
      tooltip.hide();
      surface.schedule();
    },
  };
}

/** A place moved by painted cells; Infinity goes to the end. */
function stepped(from, by, unit, count) {
  if (by === Infinity) return count - 1;
  return by === -Infinity ? 0 : clampNumber(from + by * unit, 0, count - 1);
}
