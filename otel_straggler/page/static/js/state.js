// What the viewer has chosen. It lives in the address (`#run=demo&rank=5`), so a view can be shared.

const STATE_KEYS = ["run", "group", "section", "rank"];

/** What a fragment of an address says; what is missing or no rank is null. */
export function parseHash(hash) {
  const told = new URLSearchParams(hash.replace(/^#/, ""));
  const chosen = {};
  for (const key of STATE_KEYS) chosen[key] = told.has(key) ? told.get(key) : null;
  chosen.rank = /^\d{1,9}$/.test(chosen.rank ?? "") ? Number(chosen.rank) : null;
  return chosen;
}

/** The fragment that says this choice; empty if nothing is chosen. */
export function hashOf(chosen) {
  const told = new URLSearchParams();
  for (const key of STATE_KEYS) {
    if (chosen[key] !== null && chosen[key] !== undefined) told.set(key, chosen[key]);
  }
  const text = told.toString();
  return text ? `#${text}` : "";
}

/** The choice after a change: another run or group begins without a section and a rank. */
export function chosenAfter(chosen, change) {
  const after = { ...chosen };
  if ("run" in change && change.run !== chosen.run) {
    Object.assign(after, { group: null, section: null, rank: null });
  }
  if ("group" in change && change.group !== chosen.group) {
    Object.assign(after, { section: null, rank: null });
  }
  for (const key of STATE_KEYS) if (key in change) after[key] = change[key] ?? null;
  return after;
}

/**
 * The section that charts show: the chosen one ("" is all of them), else that of the verdict in the
 * answer, so that they show what the headline says.
 */
export function shownSection(picture, chosen) {
  if (chosen.section !== null && chosen.section !== undefined) return chosen.section;
  const { section, peers } = picture?.answer ?? {};
  if (!section || !peers) return ""; // of a hang it is the section that is open, and none is slow
  return (picture.sections ?? []).some(({ name }) => name === section) ? section : "";
}

/**
 * Keeps the choice in the address of a window.
 *
 * @param win the window.
 * @param changed called with the choice after every change, also by "back" and by hand.
 */
export function createState(win, changed) {
  let chosen = parseHash(win.location.hash);
  const follow = () => {
    chosen = parseHash(win.location.hash);
    changed(chosen);
  };
  win.addEventListener("popstate", follow);
  win.addEventListener("hashchange", follow);
  return {
    chosen: () => chosen,
    select(change) {
      const after = chosenAfter(chosen, change);
      if (hashOf(after) === hashOf(chosen)) return;
      const isNewRun = after.run !== chosen.run;
      chosen = after;
      const address = hashOf(chosen) || win.location.pathname + win.location.search;
      if (isNewRun) win.history.pushState(null, "", address);
      else win.history.replaceState(null, "", address);
      changed(chosen);
    },
  };
}
