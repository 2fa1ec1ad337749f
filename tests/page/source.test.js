import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { addressOf } from "./js/api.js";
import { queueForStream } from "./js/browser_world.js";
import { openEmbedded, openLive } from "./js/source.js";

const CASES = JSON.parse(readFileSync(new URL("./cases.json", import.meta.url)));

/** A collector and a browser in one: answers by path, a clock, timers and streams by hand. */
class FakeWorld {
  constructor(pictures = [CASES.pictures.straggler]) {
    Object.assign(this, { pictures, clock: 1_000_000, asked: [], streams: [], timers: new Map() });
    Object.assign(this, { isAway: false, hidden: false, started: 500, version: 1, number: 0 });
    Object.assign(this, { refuses: false, turns: 1, left: 0 });
    this.visible = () => {};
    this.fails = () => null;
  }
  fetch = async (address, { headers, method, body: sent }) => {
    this.asked.push(address);
    if (method === "POST") {
      this.isLocked = JSON.parse(sent).token !== "right";
      return reply(this.isLocked ? 401 : 200, { error: "no grant has this token" });
    }
    if (this.isLocked) return reply(401, { error: "a credential is needed" });
    if (this.isAway) throw new TypeError("Failed to fetch");
    await this.held;
    const [path, query] = address.split("?");
    const error = this.fails(path);
    if (error) return reply(503, { error });
    const body = this.answer(path, new URLSearchParams(query ?? ""));
    if (body === null) return reply(404, { error: "no such run" });
    const etag = `"${path}-${this.version}"`;
    return headers["If-None-Match"] === etag ? reply(304, null, etag) : reply(200, body, etag);
  };
  answer(path, query) {
    const told = { started_at_s: this.started, now_s: this.clock / 1000 + 5 };
    if (path === "v1/runs") {
      const runs = this.pictures.map(({ run }) => ({ run_id: run.run_id, headline: this.headline }));
      return { ...told, runs };
    }
    const found = this.pictures.find(({ run }) => run.run_id === query.get("run"));
    if (!found) return null;
    if (path === "v1/run") return { ...found, ...told, snapshot: `s${this.version}` };
    if (path === "v1/rank") return CASES.rank;
    const after = Number(query.get("after") ?? 0);
    return after ? { ...CASES.timeline, first: null, columns: [], values: "" } : CASES.timeline;
  }
  openStream = (address) => {
    const stream = { address, isClosed: false, listeners: {} };
    stream.addEventListener = (name, listener) => (stream.listeners[name] = listener);
    stream.close = () => (stream.isClosed = true);
    stream.say = (name, data) => stream.listeners[name]({ data: JSON.stringify(data) });
    this.streams.push(stream);
    if (!this.refuses) queueMicrotask(() => stream.listeners.open());
    return stream;
  };
  queueForStream = (granted) => {
    this.grant = granted;
    if (this.turns > 0) granted();
    return () => (this.left += 1);
  };
  now_ms = () => this.clock;
  later = (what, ms) => {
    this.timers.set(++this.number, { what, at: this.clock + ms });
    return this.number;
  };
  clear = (timer) => this.timers.delete(timer);
  random = () => 1;
  isHidden = () => this.hidden;
  onVisible = (what) => (this.visible = what);

  /** Time passes; what is due happens, and what follows of it. */
  async pass(ms) {
    const end = this.clock + ms;
    for (;;) {
      const due = [...this.timers].filter(([, { at }]) => at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.timers.delete(due[0]);
      this.clock = Math.max(this.clock, due[1].at);
      due[1].what();
      await settled();
    }
    this.clock = end;
    await settled();
  }
  get stream() {
    return this.streams.at(-1);
  }
}

function reply(status, body, etag = null) {
  return {
    status,
    ok: status < 400,
    headers: { get: (name) => (name === "ETag" ? etag : null) },
    json: async () => structuredClone(body),
  };
}

async function settled() {
  for (let turn = 0; turn < 40; turn += 1) await Promise.resolve();
}

const NONE = { run: null, group: null, section: null, rank: null };

async function started(world, chosen = NONE) {
  const seen = [];
  const source = openLive(world);
  source.start((view) => seen.push(view), chosen);
  await settled();
  return { source, seen, last: () => seen.at(-1) };
}

test("addresses leave out what is not asked and keep an empty group", () => {
  assert.equal(addressOf("v1/run", { run: "a b&c", group: "", rank: null }), "v1/run?run=a+b%26c&group=");
  assert.equal(addressOf("v1/runs", {}), "v1/runs");
});

test("the first run is shown, with its timeline, and the connection is live", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  assert.equal(last().connection.state, "live");
  assert.equal(last().connection.clock_s, 5);
  assert.equal(last().picture.run.run_id, "llama-7b-0412");
  assert.equal(last().timeline.columns.length, 120);
  assert.equal(last().rank, null);
  assert.equal(world.stream.address, "v1/events?run=llama-7b-0412");
});

test("news of the same picture ask for nothing", async () => {
  const world = new FakeWorld();
  await started(world);
  const before = world.asked.length;
  world.stream.say("snapshot", { snapshot: "s1", now_s: 1 });
  await world.pass(3000);
  assert.equal(world.asked.length, before);
});

test("news are looked at, but not more often than the collector wants", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  const looks = () => world.asked.filter((address) => address.startsWith("v1/run?")).length;
  for (let change = 2; change < 6; change += 1) {
    world.version = change;
    world.stream.say("snapshot", { snapshot: `s${change}`, now_s: 1 });
    await world.pass(100);
  }
  assert.equal(looks(), 1);
  await world.pass(1000);
  assert.equal(looks(), 2);
  assert.equal(last().picture.snapshot, "s5");
});

test("a timeline is asked for only where it goes on", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  world.pictures = [{ ...CASES.pictures.straggler, timeline: { first: 1, last: 121, n_columns: 121 } }];
  world.version = 2;
  world.stream.say("snapshot", { snapshot: "s2", now_s: 1 });
  await world.pass(1500);
  const asked = world.asked.filter((address) => address.startsWith("v1/timeline"));
  assert.match(asked.at(-1), /after=120$/);
  assert.equal(asked.length, 2);
  assert.equal(last().timeline.columns.length, 120);
});

test("an answer that has not changed is not sent again", async () => {
  const world = new FakeWorld();
  const { source, last } = await started(world);
  const first = last().picture;
  await source.look(NONE);
  assert.equal(last().picture, first);
});

test("a chosen rank is asked for, and again with every change", async () => {
  const world = new FakeWorld();
  const { source, last } = await started(world);
  await source.look({ ...NONE, rank: 21 });
  assert.equal(last().rank.rank, 21);
  world.version = 2;
  world.stream.say("snapshot", { snapshot: "s2", now_s: 1 });
  await world.pass(2000);
  assert.equal(world.asked.filter((address) => address.startsWith("v1/rank")).length, 2);
});

test("a lost stream is tried again ever more slowly, and the picture stays", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  world.isAway = true;
  world.stream.listeners.error();
  const waits = [];
  for (let attempt = 0; attempt < 8; attempt += 1) {
    assert.equal(last().connection.state, "reconnecting");
    waits.push(last().connection.retry_ms - world.clock);
    await world.pass(waits.at(-1));
  }
  assert.deepEqual(waits, [1000, 2000, 4000, 8000, 15000, 15000, 15000, 15000]);
  assert.equal(last().connection.since_ms, 1_000_000);
  assert.equal(last().picture.run.run_id, "llama-7b-0412");
  assert.ok(world.streams.every((stream) => stream.isClosed));
});

test("once the collector is back all is live again at the next try", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  world.isAway = true;
  world.stream.listeners.error();
  await world.pass(1000);
  world.isAway = false;
  world.version = 2;
  await world.pass(2000);
  assert.equal(last().connection.state, "live");
  assert.equal(last().connection.retry_ms, null);
  assert.equal(last().picture.snapshot, "s2");
  assert.equal(world.streams.filter((stream) => !stream.isClosed).length, 1);
});

test("after a restart nothing old is kept: timelines begin anew", async () => {
  const world = new FakeWorld();
  await started(world);
  world.stream.listeners.error();
  Object.assign(world, { started: 900, version: 2 });
  await world.pass(1000);
  const asked = world.asked.filter((address) => address.startsWith("v1/timeline"));
  assert.equal(asked.length, 2);
  assert.ok(asked.every((address) => !address.includes("after=")));
});

test("a run of another shard has its own start, and its timeline goes on", async () => {
  const world = new FakeWorld();
  const ofOwn = world.answer;
  world.answer = (path, query) => {
    const body = ofOwn.call(world, path, query);
    if (path === "v1/runs") return { ...body, collector: "here" };
    return path === "v1/run" ? { ...body, collector: "there", started_at_s: 7 } : body;
  };
  const { last } = await started(world);
  const before = world.asked.length;
  world.pictures = [{ ...CASES.pictures.straggler, timeline: { first: 1, last: 121, n_columns: 121 } }];
  world.version = 2;
  world.stream.say("snapshot", { snapshot: "s2", now_s: 1 });
  await world.pass(1500);
  const since = world.asked.slice(before);
  assert.equal(last().picture.collector, "there");
  assert.ok(since.some((address) => /^v1\/timeline.*after=120$/.test(address)));
  assert.ok(!since.includes("v1/runs"));
});

test("a stream that is dead without a word is found by asking", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  world.isAway = true;
  await world.pass(15000);
  assert.equal(last().connection.state, "reconnecting");
});

test("without a run the page waits for one and then shows it", async () => {
  const world = new FakeWorld([]);
  const { last } = await started(world);
  assert.deepEqual(last().runs.runs, []);
  assert.equal(last().picture, null);
  assert.equal(last().connection.state, "live");
  Object.assign(world, { pictures: [CASES.pictures.healthy], version: 2 });
  world.stream.say("runs", { n: 1 });
  await settled();
  assert.equal(last().picture.run.run_id, "llama-7b-0412");
  assert.match(world.stream.address, /run=llama/);
});

for (const [what, news] of [
  ["is told of by its picture", (world) => world.stream.say("snapshot", { snapshot: "s2", now_s: 1 })],
  ["is found by looking at the list now and then", (world) => world.pass(15000)],
]) {
  test(`a first run that came before the stream was there ${what}`, async () => {
    const world = new FakeWorld([]);
    const { last } = await started(world);
    Object.assign(world, { pictures: [CASES.pictures.healthy], version: 2 });
    await news(world);
    await settled();
    assert.equal(last().picture.run.run_id, "llama-7b-0412");
    assert.match(world.stream.address, /run=llama/);
  });
}

test("what the collector cannot do is its sentence, tried again, and another choice need not wait", async () => {
  const world = new FakeWorld();
  const { source, last } = await started(world);
  world.fails = (path) => (path === "v1/run" ? "/h.db: got no file" : null);
  source.look({ ...NONE, run: "old" });
  await settled();
  assert.equal(last().connection.state, "reconnecting");
  assert.equal(last().connection.told, "/h.db: got no file");
  const waits = [];
  for (let tries = 0; tries < 4; tries += 1) {
    waits.push(last().connection.retry_ms - world.clock);
    await world.pass(waits.at(-1));
  }
  assert.deepEqual(waits, [1000, 2000, 4000, 8000]);
  world.fails = () => null;
  source.look(NONE);
  await settled();
  assert.equal(last().connection.state, "live");
  assert.equal(last().connection.told, null);
});

test("a run that has sent nothing yet is waited for, and shown as soon as it has", async () => {
  const world = new FakeWorld([]);
  const { last } = await started(world, { ...NONE, run: "later" });
  assert.match(last().problem, /^Waiting for the first data of run later: this page shows it as soon/);
  assert.equal(last().picture, null);
  assert.equal(last().connection.state, "live");
  const picture = CASES.pictures.straggler;
  world.pictures = [{ ...picture, run: { ...picture.run, run_id: "later" } }];
  world.version += 1;
  world.streams.at(-1).say("snapshot", { snapshot: "s2", now_s: world.clock / 1000 });
  await world.pass(5000);
  assert.equal(last().problem, null);
  assert.equal(last().picture.run.run_id, "later");
});

test("what a known run has not is the collector's sentence, not a lost connection", async () => {
  const world = new FakeWorld();
  world.answer = (path) => (path === "v1/runs" ? { runs: [{ run_id: "known" }], now_s: 5 } : null);
  const { last } = await started(world, { ...NONE, run: "known", group: "gone" });
  assert.equal(last().problem, "no such run");
  assert.equal(last().picture, null);
  assert.equal(last().connection.state, "live");
});

test("another run has another stream, and the old one is closed", async () => {
  const other = { ...CASES.pictures.ended, run: { ...CASES.pictures.ended.run, run_id: "other" } };
  const world = new FakeWorld([CASES.pictures.straggler, other]);
  const { source, last } = await started(world);
  await source.look({ ...NONE, run: "other" });
  assert.equal(last().picture.run.run_id, "other");
  assert.equal(last().connection.state, "ended");
  assert.deepEqual(world.streams.map((stream) => stream.isClosed), [true, false]);
});

test("an answer that comes after the viewer has turned to another run is not shown", async () => {
  const other = { ...CASES.pictures.healthy, run: { ...CASES.pictures.healthy.run, run_id: "other" } };
  const world = new FakeWorld([CASES.pictures.straggler, other]);
  const { source, seen, last } = await started(world);
  let release;
  world.held = new Promise((resolve) => (release = resolve));
  Object.assign(world, { version: 2 });
  world.stream.say("snapshot", { snapshot: "s2", now_s: 1 });
  await world.pass(1500);
  const turned = source.look({ ...NONE, run: "other" });
  const before = seen.length;
  release();
  await turned;
  await settled();
  assert.equal(last().picture.run.run_id, "other");
  const shown = seen.slice(before).map((view) => view.picture.run.run_id);
  assert.deepEqual([...new Set(shown)], ["other"]);
});

test("what a stream says after it was closed is not heard", async () => {
  const world = new FakeWorld();
  const { source, last } = await started(world);
  const old = world.stream;
  await source.look({ ...NONE, run: "llama-7b-0412" });
  assert.ok(old.isClosed);
  const before = world.asked.length;
  old.listeners.error();
  old.say("snapshot", { snapshot: "other", now_s: 1 });
  await world.pass(3000);
  assert.equal(last().connection.state, "live");
  assert.equal(world.streams.length, 2);
  assert.equal(world.asked.length, before);
});

test("a page that nobody sees has no stream and asks for no picture until it is seen", async () => {
  const world = new FakeWorld();
  await started(world);
  const looks = () => world.asked.filter((address) => !address.startsWith("v1/runs")).length;
  hide(world, true);
  await world.pass(16000);
  const before = looks();
  world.version = 2;
  await world.pass(60000);
  assert.equal(looks(), before);
  assert.ok(world.stream.isClosed);
  assert.equal(world.left, 1);
  hide(world, false);
  await settled();
  assert.ok(looks() > before);
  assert.ok(!world.stream.isClosed);
});

test("for the title a hidden page looks once when the list tells another headline", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  hide(world, true);
  await world.pass(16000);
  const before = world.asked.length;
  Object.assign(world, { version: 2, headline: "Rank 5 is slow" });
  await world.pass(60000);
  const asked = world.asked.slice(before).filter((address) => address.startsWith("v1/run?"));
  assert.equal(asked.length, 1);
  assert.equal(last().picture.snapshot, "s2");
});

test("a tab whose turn it is not asks, until it may have a stream", async () => {
  const world = new FakeWorld();
  world.turns = 0;
  const { last } = await started(world);
  assert.equal(last().connection.state, "live");
  world.version = 2;
  await world.pass(3000);
  assert.equal(last().picture.snapshot, "s2");
  assert.equal(world.streams.length, 0);
  world.grant();
  await settled();
  const before = world.asked.length;
  await world.pass(9000);
  assert.equal(world.asked.length, before);
  assert.equal(world.streams.length, 1);
});

test("a tab without a stream finds that the collector is away, and that it is another one", async () => {
  const world = new FakeWorld();
  world.turns = 0;
  const { last } = await started(world);
  world.isAway = true;
  world.version = 2;
  await world.pass(3000);
  assert.equal(last().connection.state, "reconnecting");
  Object.assign(world, { isAway: false, started: 900 });
  await world.pass(1000);
  assert.equal(last().connection.state, "live");
  assert.equal(last().picture.snapshot, "s2");
  assert.ok(!world.asked.at(-1).includes("after="));
});

test("a stream that is refused, or held back, is no lost connection: the page asks", async () => {
  const world = new FakeWorld();
  world.refuses = true;
  const { last } = await started(world);
  world.stream.listeners.error();
  world.version = 2;
  await world.pass(3000);
  assert.equal(last().connection.state, "live");
  assert.equal(last().picture.snapshot, "s2");
  world.refuses = false;
  await world.pass(60000);
  assert.equal(world.streams.length, 2);
  world.isAway = true;
  await world.pass(15000);
  assert.equal(last().connection.state, "reconnecting");
});

function hide(world, isHidden) {
  world.hidden = isHidden;
  world.visible();
}

test("three tabs of a browser have a turn, and the next one gets it when one leaves", async () => {
  const locks = new FakeLocks();
  const turns = [];
  const leave = [1, 2, 3, 4, 5].map((tab) => queueForStream(locks, () => turns.push(tab)));
  await settled();
  assert.deepEqual(turns, [1, 2, 3]);
  leave[3](); // one that waits goes away
  leave[1]();
  await settled();
  assert.deepEqual(turns, [1, 2, 3, 5]);
  queueForStream(undefined, () => turns.push("without locks")); // nobody's turn ever comes
  await settled();
  assert.equal(turns.length, 4);
});

/** What `navigator.locks.request` does with exclusive locks. */
class FakeLocks {
  waiting = new Map();
  request(name, { signal }, take) {
    const before = this.waiting.get(name) ?? Promise.resolve();
    const done = before.then(() => (signal.aborted ? undefined : take()));
    this.waiting.set(name, done);
    return done;
  }
}

test("a collector that wants a token is asked nothing more until it has one", async () => {
  const world = new FakeWorld();
  world.isLocked = true;
  const { source, last } = await started(world);
  assert.equal(last().connection.state, "locked");
  const before = world.asked.length;
  await world.pass(60_000);
  source.look({ ...NONE, rank: 3 });
  assert.equal(world.asked.length, before);
  assert.equal(await source.login("wrong"), "no grant has this token");
  assert.equal(last().connection.state, "locked");
  assert.equal(await source.login("right"), null);
  assert.equal(last().connection.state, "live");
  assert.equal(last().picture.run.run_id, "llama-7b-0412");
});

test("a token that is taken away locks the page", async () => {
  const world = new FakeWorld();
  const { last } = await started(world);
  world.isLocked = true;
  await world.pass(20_000);
  assert.equal(last().connection.state, "locked");
  assert.equal(world.stream.isClosed, true);
});

test("a saved report shows what it carries, by section and rank", () => {
  const seen = [];
  const data = { runs: CASES.runs, run: CASES.pictures.straggler, timelines: { forward: CASES.timeline }, ranks: { 21: CASES.rank } };
  const source = openEmbedded(data);
  source.start((view) => seen.push(view), { ...NONE, rank: 21 });
  assert.equal(seen[0].connection.state, "saved");
  assert.equal(seen[0].timeline.columns.length, 120); // of the section of the verdict
  assert.equal(seen[0].rank.rank, 21);
  source.look({ ...NONE, section: "", rank: 3 });
  assert.equal(seen[1].timeline, null);
  assert.equal(seen[1].rank, null);
});
