// Says a changed headline once to who listens; and names the window and its icon after it.

import { toneMark, toneName } from "./answer.js";
import { printableText } from "./dom.js";

const QUIET_MS = 10000;

/** A polite live region: changes that come faster than every ten seconds are said together. */
export function createAnnouncer(container) {
  let said = null;
  let saidAt = -Infinity;
  let timer = null;
  const say = (text) => {
    timer = null;
    saidAt = Date.now();
    container.textContent = printableText(text);
  };
  return {
    update(picture) {
      const text = picture ? `${toneName(picture.answer.tone)}: ${picture.answer.headline}` : "";
      document.title = printableText(titleOf(picture));
      document.documentElement.dataset.tone = picture?.answer.tone ?? "unknown";
      if (text === said) return;
      const isFirst = said === null;
      said = text;
      if (isFirst) return; // who opens the page reads it anyway
      window.clearTimeout(timer);
      timer = window.setTimeout(() => say(said), Math.max(0, saidAt + QUIET_MS - Date.now()));
    },
  };
}

/** Title of the window: the tone first, because a tab shows little. */
export function titleOf(picture) {
  if (!picture) return "otel-straggler";
  const { answer, run } = picture;
  return `${toneMark(answer.tone)} ${answer.headline} · ${run.job || run.run_id}`;
}
