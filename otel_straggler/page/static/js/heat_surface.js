// A canvas that is crisp at any density of pixels, follows the size of its host, and is drawn at
// most once per frame; and what drawing reuses from frame to frame. Lengths are units of charts: CSS
// pixels, or more where people want larger text.

import { textScale } from "./chart_dom.js";

/** Calls `draw(size)` in the next frame after `schedule()`, however often that is called. */
export function createHeatSurface(host, canvas, draw, onResize) {
  const context = canvas.getContext("2d");
  const state = { request: 0, width: 0, height: 0, ratio: 1, scale: 1, isGone: false };
  const measure = () => {
    const scale = textScale();
    const ratio = (globalThis.devicePixelRatio || 1) * scale;
    const [width, height] = [host.clientWidth / scale, host.clientHeight / scale];
    if (width === state.width && height === state.height && ratio === state.ratio) return;
    Object.assign(state, { width, height, ratio, scale });
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    onResize(state);
    flush(); // in this frame: a canvas that has been sized is empty
  };
  const flush = () => {
    if (state.request) cancelAnimationFrame(state.request);
    state.request = 0;
    if (!state.isGone && state.width > 0 && state.height > 0) draw(context, state);
  };
  const schedule = () => {
    if (!state.request && !state.isGone) state.request = requestAnimationFrame(flush);
  };
  const observer = new ResizeObserver(measure);
  observer.observe(host);
  globalThis.addEventListener("resize", measure); // a change of the ratio alone
  const destroy = () => {
    state.isGone = true;
    cancelAnimationFrame(state.request);
    observer.disconnect();
    globalThis.removeEventListener("resize", measure);
  };
  return { schedule, measure, state, destroy };
}

/** A bitmap that grows and is used again; `bitmapFor` says which part of it has to be filled. */
export function createHeatScratch() {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const bitmap = { canvas, context, image: null, target: null, stride: 0 };
  const bitmapFor = (width, height) => {
    if (!bitmap.image || width > bitmap.image.width || height > bitmap.image.height) {
      canvas.width = Math.max(bitmap.image?.width ?? 0, Math.ceil(width / 32) * 32);
      canvas.height = Math.max(bitmap.image?.height ?? 0, Math.ceil(height / 64) * 64);
      bitmap.image = context.createImageData(canvas.width, canvas.height);
      bitmap.target = new Uint32Array(bitmap.image.data.buffer);
      bitmap.stride = canvas.width;
    }
    return bitmap;
  };
  return { bitmapFor };
}

/** Fillings: `empty` for cells without data, `silent` for workers that say nothing. */
export function createHeatPatterns(context, palette) {
  return {
    empty: hatchPattern(context, palette.empty, palette.hatch, 6, 0.8),
    silent: hatchPattern(context, null, palette.flag, 7, 2.2),
  };
}

function hatchPattern(context, ground, lines, size, width) {
  const ratio = Math.ceil(globalThis.devicePixelRatio || 1);
  const tile = document.createElement("canvas");
  tile.width = size * ratio;
  tile.height = size * ratio;
  const pen = tile.getContext("2d");
  pen.scale(ratio, ratio);
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, size, size);
  }
  pen.strokeStyle = lines;
  pen.lineWidth = width;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
