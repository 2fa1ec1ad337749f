// The three charts on a page of their own, driven by tests through `window.charts`.

import { decodeTimeline, mergeTimelines } from "/static/js/bytes.js";
import { createMatrix } from "/static/js/matrix.js";
import { createRankTime } from "/static/js/rank_time.js";
import { createSectionHeat } from "/static/js/section_heat.js";

const it = {
  picture: null,
  timeline: null,
  ui: { run: "demo", group: "", section: "", rank: null, theme: "light" },
};
const selected = [];
const actions = {
  select(change) {
    selected.push(change);
    Object.assign(it.ui, change);
    redraw();
  },
};
const parts = {
  matrix: createMatrix(document.getElementById("matrix"), actions),
  rankTime: createRankTime(document.getElementById("rank-time"), actions),
  sections: createSectionHeat(document.getElementById("sections"), actions),
};

function redraw() {
  parts.matrix.update(it.picture, it.ui);
  parts.rankTime.update(it.picture, it.ui, it.timeline);
  parts.sections.update(it.picture, it.ui);
}

window.charts = {
  parts,
  selected,
  ui: it.ui,
  show(picture, timeline) {
    it.picture = picture;
    it.timeline = timeline && decodeTimeline(timeline);
    redraw();
  },
  add(timeline) {
    it.timeline = mergeTimelines(it.timeline, decodeTimeline(timeline));
    redraw();
  },
};
document.body.dataset.ready = "";
