// Mouse, touch, wheel and keys over a canvas, as what they mean: pan, zoom, point, pick, move.

const FARTHEST_CLICK = 4;
const KEY_ZOOM = 1.4;
const DOUBLE_CLICK_ZOOM = 2.5;

/**
 * Answers how to stop. `on` has: panBy(x, y) -> whether anything moved, zoomBy(x, y, atX, atY),
 * zoomRows(factor, atX, atY) (rows if they can be zoomed), fit(), pointAt(x, y) or pointAt(null),
 * pickAt(x, y), moveFocus(rows, columns), pickFocus(), leaveFocus(), focus(), blur().
 * Places are units of the chart, of `scaleOf()` CSS pixels each.
 */
export function listenToHeat(canvas, on, scaleOf = () => 1) {
  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / scaleOf(), (event.clientY - box.top) / scaleOf()];
  };
  const listeners = [
    ...pointerListeners(canvas, on, placeOf),
    ["wheel", (event) => wheel(event, on, placeOf)],
    [
      "dblclick",
      (event) =>
        on.zoomRows(
          event.shiftKey ? 1 / DOUBLE_CLICK_ZOOM : DOUBLE_CLICK_ZOOM,
          ...placeOf(event),
        ),
    ],
    ["keydown", (event) => key(event, on)],
    ["focus", () => on.focus(canvas.matches(":focus-visible"))],
    ["blur", () => on.blur()],
  ];
  for (const [name, listener] of listeners)
    canvas.addEventListener(name, listener, { passive: false });
  return () => listeners.forEach(([name, listener]) => canvas.removeEventListener(name, listener));
}

function pointerListeners(canvas, on, placeOf) {
  const down = new Map(); // pointers that are pressed: id -> place
  let moved = 0;
  const press = (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture?.(event.pointerId);
    down.set(event.pointerId, placeOf(event));
    moved = down.size > 1 ? Infinity : 0;
  };
  const move = (event) => {
    const [x, y] = placeOf(event);
    const before = down.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") on.pointAt(x, y);
      return;
    }
    if (down.size > 1) pinch(down, event.pointerId, [x, y], on);
    moved += Math.hypot(x - before[0], y - before[1]);
    if (down.size === 1 && moved > FARTHEST_CLICK) {
      on.pointAt(null);
      on.panBy(x - before[0], y - before[1]);
    }
    down.set(event.pointerId, [x, y]);
  };
  const release = (event) => {
    if (!down.delete(event.pointerId) || event.type === "pointercancel") return;
    if (moved > FARTHEST_CLICK) return;
    on.pointAt(...placeOf(event));
    on.pickAt(...placeOf(event));
  };
  return [
    ["pointerdown", press],
    ["pointermove", move],
    ["pointerup", release],
    ["pointercancel", release],
    ["pointerleave", (event) => event.pointerType !== "touch" && on.pointAt(null)],
  ];
}

/** Two fingers: their middle moves the grid, their distance across and down sizes its cells. */
function pinch(down, id, place, on) {
  const [still] = [...down].filter(([other]) => other !== id).map(([, at]) => at);
  const before = down.get(id);
  const spread = (axis) => {
    const [was, is] = [Math.abs(before[axis] - still[axis]), Math.abs(place[axis] - still[axis])];
    return was < 24 || is < 24 ? 1 : is / was;
  };
  on.panBy((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
  on.zoomBy(spread(0), spread(1), (place[0] + still[0]) / 2, (place[1] + still[1]) / 2);
}

function wheel(event, on, placeOf) {
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const [byX, byY] = [event.deltaX * unit, event.deltaY * unit];
  const [x, y] = placeOf(event);
  if (event.ctrlKey || event.metaKey) {
    const factor = Math.exp(-Math.max(-60, Math.min(60, byY || byX)) / 150);
    if (event.shiftKey) on.zoomBy(factor, 1, x, y);
    else on.zoomRows(factor, x, y);
    on.pointAt(x, y);
    event.preventDefault();
    return;
  }
  const isSideways = event.shiftKey && byX === 0;
  if (isSideways ? on.panBy(-byY, 0) : on.panBy(-byX, -byY)) event.preventDefault();
  on.pointAt(x, y);
}

const STEPS_OF_KEYS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-20, 0],
  PageDown: [20, 0],
};
const PAN_PIXELS = 60;

function key(event, on) {
  if (event.altKey || event.metaKey) return;
  if (actOnKey(event, on)) event.preventDefault();
}

function actOnKey(event, on) {
  const step = STEPS_OF_KEYS[event.key];
  if (step && event.shiftKey) return (on.panBy(-step[1] * PAN_PIXELS, -step[0] * PAN_PIXELS), true);
  if (step && !event.ctrlKey) return (on.moveFocus(...step), true);
  const acts = {
    Home: () => (event.ctrlKey ? on.moveFocus(-Infinity, 0) : on.moveFocus(0, -Infinity)),
    End: () => (event.ctrlKey ? on.moveFocus(Infinity, 0) : on.moveFocus(0, Infinity)),
    Enter: () => on.pickFocus(),
    " ": () => on.pickFocus(),
    Escape: () => on.leaveFocus(),
    "+": () => on.zoomRows(KEY_ZOOM),
    "=": () => on.zoomRows(KEY_ZOOM),
    "-": () => on.zoomRows(1 / KEY_ZOOM),
    "]": () => on.zoomBy(KEY_ZOOM, 1),
    "[": () => on.zoomBy(1 / KEY_ZOOM, 1),
    0: () => on.fit(),
  };
  if (event.ctrlKey && !["Home", "End"].includes(event.key)) return false;
  if (!Object.hasOwn(acts, event.key)) return false;
  return acts[event.key]() !== false; // Escape may have nothing to leave here
}
