// Where the data comes from: a collector that is asked again whenever it says that something has
// changed, or the data that a saved report carries in itself. Both tell it in the same form.

import { createApi, addressOf } from "./api.js";
import { browserWorld } from "./browser_world.js";
import { decodeTimeline, mergeTimelines } from "./bytes.js";
import { createNews } from "./news.js";
import { shownSection } from "./state.js";

/**
 * What a source tells, always all of it:
 * `runs` answer of /v1/runs, `picture` of /v1/run, `timeline` of all windows known, `rank` answer of
 * /v1/rank; each null while there is none. `connection`: `state` (connecting, live, reconnecting,
 * locked: a login is needed, ended, saved), `since_ms` when it became so, `retry_ms` when the next try is due, `told` the
 * collector's sentence if it answers that it cannot, and `clock_s`, by which the collector's clock is
 * ahead of ours.
 */
function emptyView(state) {
  const connection = { state, since_ms: Date.now(), retry_ms: null, told: null, clock_s: 0 };
  return { runs: null, picture: null, timeline: null, rank: null, problem: null, connection };
}

/** The source of this document. */
export function openSource() {
  const embedded = document.getElementById("straggler-data");
  if (embedded) return openEmbedded(JSON.parse(embedded.textContent));
  return openLive();
}

/** Data that is there already; there is one run and one group in it. */
export function openEmbedded(data) {
  const view = emptyView("saved");
  view.runs = data.runs;
  view.picture = data.run && { ...data.run, run: { ...data.run.run, groups: [data.run.run.group] } };
  return {
    start(changed, chosen) {
      this.look = (now) => {
        const timeline = (data.timelines || {})[shownSection(view.picture, now)];
        view.timeline = timeline ? decodeTimeline(timeline) : null;
        view.rank = (data.ranks || {})[String(now.rank)] || null;
        changed({ ...view });
      };
      this.look(chosen);
    },
    look() {},
    retry() {},
    stop() {},
  };
}

const SLOWEST_RETRY_MS = 15000;
const FIRST_RETRY_MS = 500;
const WATCH_MS = 15000;
const MOST_TIMELINES = 6;

/**
 * Asks a collector.
 *
 * @param world what it does to the outside; tests give their own.
 */
export function openLive(world = browserWorld()) {
  const api = createApi(world);
  const view = emptyView("connecting");
  const timelines = new Map();
  let chosen = {};
  let changed = () => {};
  let followedRun = null;
  const starts = new Map(); // of each collector: with several shards a run is another one's
  let failures = 0;
  let retryTimer = null;
  let lookTimer = null;
  let lookedAt = -Infinity;
  let isLooking = false;
  let mustLook = false;
  let generation = 0;
  let glanced = null;

  const news = createNews(world, {
    runs: follow,
    snapshot: (told) => {
      reached(told.now_s);
      if (followedRun === null) return follow(); // the first run came before the stream was there
      if (told.snapshot === view.picture?.snapshot) return tell();
      soon();
    },
    ask: () => (followedRun === null ? follow() : soon()),
    lost,
  });

  const tell = () => changed({ ...view, connection: { ...view.connection } });

  function become(state) {
    if (view.connection.state === state) return;
    Object.assign(view.connection, { state, since_ms: world.now_ms() });
  }

  function lost(error) {
    news.stop();
    if (error?.needsLogin) return lock();
    failures += 1;
    const longest = Math.min(SLOWEST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(failures, 8));
    const wait = longest * (0.5 + 0.5 * world.random()); // pages do not all come back at once
    become("reconnecting");
    view.connection.told = error?.told ?? null;
    view.connection.retry_ms = world.now_ms() + wait;
    world.clear(retryTimer);
    retryTimer = world.later(connect, wait);
    tell();
  }

  function lock() {
    world.clear(retryTimer);
    Object.assign(view.connection, { retry_ms: null, told: null });
    become("locked");
    tell();
  }

  function reached(nowS) {
    failures = 0;
    Object.assign(view.connection, { retry_ms: null, told: null });
    if (typeof nowS === "number") view.connection.clock_s = nowS - world.now_ms() / 1000;
    become(hasEnded(view.picture) ? "ended" : "live");
  }

  function forget() {
    api.forget();
    timelines.clear();
    view.rank = null;
  }

  function hasRestarted({ collector, started_at_s: startedAt }) {
    const before = starts.get(collector);
    starts.set(collector, startedAt);
    return before !== undefined && before !== startedAt;
  }

  async function connect() {
    world.clear(retryTimer);
    const before = failures;
    try {
      await learnRuns();
      listen();
      await look();
    } catch (error) {
      failures = before; // the list alone is no success
      lost(error);
    }
  }

  /** Reads the list of runs; where the collector is another process than before, all begins anew. */
  async function learnRuns() {
    const answer = await api.get("v1/runs", {});
    if (answer.body === null) return reached(null);
    if (hasRestarted(answer.body)) forget();
    view.runs = answer.body;
    reached(answer.body.now_s);
  }

  /** Reads the list, and turns to its first run where nobody has chosen one. */
  function follow() {
    guarded(learnRuns().then(() => (runLookedAt() === followedRun ? tell() : turn())));
  }

  /** Follows the run that is looked at; not while nobody sees the page. */
  function listen() {
    followedRun = runLookedAt();
    if (!world.isHidden()) news.listen(addressOf("v1/events", { run: followedRun }));
  }

  /** The run of the address, else the first of the list. */
  function runLookedAt() {
    return chosen.run ?? view.runs?.runs[0]?.run_id ?? null;
  }

  function turn() {
    listen();
    return look();
  }

  function guarded(promise) {
    promise.catch(lost);
  }

  /** Looks as soon as the collector wants to be asked again, and not while nobody sees the page. */
  function soon() {
    if (lookTimer !== null || world.isHidden()) return;
    const pause = 1000 * (view.picture?.next_look_s ?? 1);
    const wait = Math.max(0, lookedAt + pause - world.now_ms());
    lookTimer = world.later(() => {
      lookTimer = null;
      guarded(look());
    }, wait);
  }

  async function look() {
    if (isLooking) {
      mustLook = true;
      return;
    }
    isLooking = true;
    try {
      do {
        mustLook = false;
        await lookOnce();
      } while (mustLook);
    } finally {
      isLooking = false;
    }
  }

  async function lookOnce() {
    const mine = generation;
    lookedAt = world.now_ms();
    const run = runLookedAt();
    if (run === null) {
      view.picture = null;
      return tell();
    }
    const answer = await api.get("v1/run", { run, group: chosen.group });
    if (mine !== generation) return (mustLook = true);
    view.problem = answer.problem && (isListed(run) ? answer.problem : waitingText(run));
    if (answer.problem) {
      Object.assign(view, { picture: null, timeline: null, rank: null });
      return tell();
    }
    if (hasRestarted(answer.body)) {
      forget();
      await learnRuns();
    }
    view.picture = answer.body;
    reached(answer.isNew ? answer.body.now_s : null);
    const which = { run: answer.body.run.run_id, group: answer.body.run.group };
    const { collector } = answer.body;
    const [timeline, rank] = await Promise.all([learnTimeline(which, collector), learnRank(which)]);
    if (mine !== generation) return (mustLook = true);
    Object.assign(view, { timeline, rank });
    return tell();
  }

  function isListed(run) {
    return view.runs?.runs.some(({ run_id: id }) => id === run) ?? false;
  }

  /** Each collector numbers its windows by itself. */
  async function learnTimeline(which, collector) {
    const query = { ...which, section: shownSection(view.picture, chosen) };
    const key = JSON.stringify([collector, query]);
    const known = timelines.get(key) ?? null;
    const last = view.picture.timeline?.last;
    if (last === null || last === undefined) return null;
    const seen = known?.last_seq ?? null;
    if (seen !== null && seen >= last) return known.timeline;
    const answer = await api.get("v1/timeline", { ...query, after: seen }, false);
    if (answer.problem || !answer.body) return known?.timeline ?? null;
    const fresh = decodeTimeline(answer.body);
    const timeline = known ? mergeTimelines(known.timeline, fresh) : fresh;
    timelines.delete(key);
    timelines.set(key, { timeline, last_seq: answer.body.last ?? last });
    if (timelines.size > MOST_TIMELINES) timelines.delete(timelines.keys().next().value);
    return timeline;
  }

  async function learnRank(which) {
    if (chosen.rank === null || chosen.rank === undefined) return null;
    const answer = await api.get("v1/rank", { ...which, rank: chosen.rank });
    return answer.body;
  }

  function isAway() {
    return ["reconnecting", "locked"].includes(view.connection.state);
  }

  /** A stream that is silently dead, and a list of runs that changed, are found here. */
  function watch() {
    world.later(watch, WATCH_MS);
    if (isAway()) return;
    if (world.isHidden()) glance();
    else follow();
  }

  /** Nobody sees the page but its title, and that is to be true: the list tells headlines. */
  function glance() {
    const isOther = () => {
      const run = view.runs?.runs.find(({ run_id: id }) => id === runLookedAt());
      const before = glanced;
      glanced = `${run?.tone} ${run?.headline}`;
      return glanced !== before;
    };
    guarded(learnRuns().then(() => isOther() && look()));
  }

  /** The tab was hidden, or is seen again. */
  function turnedTab() {
    glanced = null;
    if (world.isHidden()) return news.rest();
    if (isAway()) return connect();
    listen();
    guarded(look());
  }

  return {
    start(listener, first) {
      changed = listener;
      chosen = first;
      world.onVisible(turnedTab);
      world.later(watch, WATCH_MS);
      return connect();
    },
    look(now) {
      const before = chosen;
      chosen = now;
      generation += 1;
      const { state, told } = view.connection;
      if (state === "locked") return undefined;
      if (state === "reconnecting") return told ? connect() : undefined;
      const isSame = (before.run ?? null) === (now.run ?? null);
      const done = isSame ? look() : turn();
      return done.catch(lost);
    },
    retry: () => connect(),
    async login(token) {
      const problem = await api.login(token);
      if (problem === null) await connect();
      return problem;
    },
    stop() {
      news.rest();
      world.clear(retryTimer);
      world.clear(lookTimer);
    },
  };
}

/** Of a link that a training prints before its first data are here; it may be an old one, too. */
function waitingText(run) {
  return (
    `Waiting for the first data of run ${run}: this page shows it as soon as it comes. ` +
    "If it ran before, this collector has not kept it."
  );
}

function hasEnded(picture) {
  return picture !== null && (picture.run.finished_at_s !== null || !picture.run.is_live);
}
