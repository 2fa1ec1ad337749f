// All of a grid in a narrow strip, with a frame around what the chart shows; drag it to go there.

import { heatDetail, heatPatch, paintHeat } from "./heat_levels.js";
import { createHeatScratch } from "./heat_surface.js";
import { canPan, clampView } from "./viewport.js";

/** `update(it)` after each draw of a heat view, `show(view)` moves it. Repaints only a new grid. */
export function createHeatMinimap(canvas, show) {
  const scratch = createHeatScratch();
  const painted = { grid: null, pixels: null, width: 0, height: 0, patch: null, bitmap: null };
  let seen = null;
  const update = (it) => {
    seen = it;
    const [width, height] = [
      canvas.clientWidth / it.scale,
      Math.min(canvas.clientHeight / it.scale, it.layout.top + it.bounds.height),
    ];
    const isHidden = width === 0 || it.grid.rows === 0;
    if (isHidden) return;
    repaint(painted, scratch, it, width, height);
    drawMinimap(canvas, painted, it, width, height);
  };
  const goTo = (event) => {
    const box = canvas.getBoundingClientRect();
    const { view, bounds } = seen;
    const x =
      ((event.clientX - box.left) / seen.scale / painted.width) * bounds.columns -
      bounds.width / view.cellWidth / 2;
    const y =
      (((event.clientY - box.top) / seen.scale - seen.layout.top) / plotHeight(seen, painted.height)) *
        bounds.rows -
      bounds.height / view.cellHeight / 2;
    show(clampView({ ...view, x, y }, bounds));
  };
  const press = (event) => {
    canvas.setPointerCapture(event.pointerId);
    goTo(event);
  };
  const drag = (event) => canvas.hasPointerCapture(event.pointerId) && goTo(event);
  canvas.addEventListener("pointerdown", press);
  canvas.addEventListener("pointermove", drag);
  return { update };
}

function plotHeight(it, height) {
  return height - it.layout.top;
}

function repaint(painted, scratch, it, width, height) {
  const isSame =
    painted.grid === it.grid &&
    painted.pixels === it.pixels &&
    painted.width === width &&
    painted.height === height;
  if (isSame) return;
  const { rows, columns, levels } = it.grid;
  const detail = heatDetail(
    { cellWidth: width / columns, cellHeight: plotHeight(it, height) / rows },
    1,
  );
  const patch = heatPatch(
    { firstRow: 0, endRow: rows, firstColumn: 0, endColumn: columns },
    detail,
  );
  const bitmap = scratch.bitmapFor(patch.groups, patch.bins);
  paintHeat(bitmap.target, bitmap.stride, levels, detail, patch, it.pixels);
  bitmap.context.putImageData(bitmap.image, 0, 0, 0, 0, patch.groups, patch.bins);
  Object.assign(painted, {
    grid: it.grid,
    pixels: it.pixels,
    width,
    height,
    patch,
    bitmap,
    detail,
  });
}

function drawMinimap(canvas, painted, it, width, height) {
  const { view, bounds, palette, ratio, layout, grid } = it;
  const tallest = canvas.clientHeight / it.scale;
  const [across, down] = [Math.round(width * ratio), Math.round(tallest * ratio)];
  if (canvas.width !== across || canvas.height !== down)
    Object.assign(canvas, { width: across, height: down });
  const context = canvas.getContext("2d");
  const tall = plotHeight(it, height);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, tallest);
  context.translate(0, layout.top);
  context.fillStyle = palette.empty;
  context.fillRect(0, 0, width, tall);
  const { patch, bitmap, detail } = painted;
  const stretch = {
    x: (patch.groups * detail.columns) / grid.columns,
    y: (patch.bins * detail.rows) / grid.rows,
  };
  context.imageSmoothingEnabled = false;
  context.drawImage(
    bitmap.canvas,
    0,
    0,
    patch.groups,
    patch.bins,
    0,
    0,
    width * stretch.x,
    tall * stretch.y,
  );
  context.clearRect(0, tall, width, tallest);
  const pan = canPan(view, bounds);
  if (!pan.across && !pan.down) return;
  frameView(context, it, width, tall);
}

function frameView(context, { view, bounds, palette }, width, tall) {
  const share = (size, cell, all) => Math.min(1, size / cell / all);
  const x = (view.x / bounds.columns) * width;
  const y = (view.y / bounds.rows) * tall;
  const w = Math.max(4, share(bounds.width, view.cellWidth, bounds.columns) * width);
  const h = Math.max(4, share(bounds.height, view.cellHeight, bounds.rows) * tall);
  context.fillStyle = palette.surface;
  context.globalAlpha = 0.55;
  context.fillRect(0, 0, width, y);
  context.fillRect(0, y + h, width, tall - y - h);
  context.globalAlpha = 1;
  context.strokeStyle = palette.accent;
  context.lineWidth = 2;
  context.strokeRect(x + 1, Math.min(y + 1, tall - 4), Math.max(3, w - 2), Math.max(3, h - 2));
}
