// Numbers, times and names as people read them. What is not known is an en dash.

export const UNKNOWN_TEXT = "–";

const UNITS_OF_SECONDS = [
  [1, 1, "s"],
  [1e-3, 1e3, "ms"],
  [1e-6, 1e6, "µs"],
];

/** A number with `digits` significant digits and thin groups of thousands. */
export function formatNumber(value, digits = 3) {
  if (!isKnown(value)) return UNKNOWN_TEXT;
  return NUMBERS.format(Number.isInteger(value) ? value : Number(value.toPrecision(digits)));
}

/** Made once: a page writes thousands of numbers a second, and each formatter costs. */
const NUMBERS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 21 });

/** Whether there is a number at all. */
export function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** A length of time within a step: `182 ms`, `1.2 s`. */
export function formatSeconds(seconds) {
  if (!isKnown(seconds)) return UNKNOWN_TEXT;
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  if (size >= 120) return formatDuration(seconds);
  const [, factor, unit] = UNITS_OF_SECONDS.find(([from]) => size >= from * 0.9995) || UNITS_OF_SECONDS[2];
  return `${formatNumber(seconds * factor)} ${unit}`;
}

/** A long time, two units at most: `45 s`, `2 min 5 s`, `3 h 12 min`, `2 d 4 h`. */
export function formatDuration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN_TEXT;
  if (seconds < 0) return `−${formatDuration(-seconds)}`;
  if (seconds < 10) return `${formatNumber(Math.round(seconds * 10) / 10)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return twoUnits(whole, 60, "min", "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return twoUnits(minutes, 60, "h", "min");
  return twoUnits(Math.round(seconds / 3600), 24, "d", "h");
}

function twoUnits(value, size, large, small) {
  const rest = value % size;
  return `${NUMBERS.format(Math.floor(value / size))} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** How long ago something was heard, in whole seconds so that it does not flicker. */
export function formatAge(seconds) {
  if (!isKnown(seconds)) return "never";
  return seconds < 1.5 ? "1 s" : formatDuration(Math.round(seconds));
}

/** Time that is lost by all ranks: `48 GPU-min`, `3.2 GPU-h`; `3.2 rank-h` where none told of a GPU. */
export function formatLostTime(seconds, isOnGpu) {
  const whose = isOnGpu ? "GPU" : "rank";
  if (!isKnown(seconds)) return UNKNOWN_TEXT;
  if (seconds < 1) return `0 ${whose}-s`;
  if (seconds < 59.5) return `${formatNumber(seconds, 2)} ${whose}-s`;
  if (seconds < 3600) return `${formatNumber(seconds / 60, 2)} ${whose}-min`;
  const hours = seconds / 3600; // as sentences of verdicts have it
  return `${hours < 9.95 ? hours.toFixed(1) : formatNumber(Math.round(hours), 2)} ${whose}-h`;
}

/** A part of a whole: `12 %`, `0.4 %`. */
export function formatPercent(part, digits = 2) {
  if (!isKnown(part)) return UNKNOWN_TEXT;
  const percent = Number((100 * part).toPrecision(12)); // 14.5, not 14.499999999999998
  return `${formatNumber(Math.abs(percent) >= 100 ? Math.round(percent) : percent, digits)} %`;
}

/** A slowdown as a factor: `1.50×`. */
export function formatTimes(factor) {
  if (!isKnown(factor)) return UNKNOWN_TEXT;
  return `${factor >= 100 ? formatNumber(Math.round(factor)) : factor.toFixed(2)}×`;
}

/** Time of day, with the day where it is not today. */
export function formatClock(atS, nowS) {
  if (!isKnown(atS)) return UNKNOWN_TEXT;
  const at = new Date(atS * 1000);
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(twoDigits).join(":");
  if (isKnown(nowS) && new Date(nowS * 1000).toDateString() === at.toDateString()) return time;
  const day = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(twoDigits).join("-");
  return `${day} ${time}`;
}

function twoDigits(number) {
  return String(number).padStart(2, "0");
}

/** `1 rank`, `64 ranks`. */
export function formatCount(count, one, many = `${one}s`) {
  return `${formatNumber(count)} ${count === 1 ? one : many}`;
}

/** The first letter large, for a sentence that begins with a name. */
export function asSentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}

/** Words of a closed list, for people: `slow_gpu` is `slow GPU or host`. Unknown ones stand as they are. */
export function wordsOf(code) {
  return KNOWN_WORDS[code] || String(code ?? UNKNOWN_TEXT).replaceAll("_", " ");
}

const KNOWN_WORDS = {
  slow_gpu: "slow GPU or host",
  slow_host: "slow host or data loading",
  late_arrival: "late arrival",
  link: "link",
  sequence_imbalance: "sequence-length imbalance",
  uneven_work: "ranks take turns",
  uniform_slowdown: "uniform slowdown",
  unknown: "unknown cause",
  host: "host clock",
  events: "CUDA events",
  cupti: "kernel times (CUPTI)",
  gpu_dropped: "kernels that the driver had no room for",
  gpu_invalid: "kernels without times",
  gpu_lost: "kernels in no known section",
  gpu_late: "kernels that came too late",
  collective: "host clock, without waiting in collectives",
  mixed: "host clock and GPU times",
  synchronised: "times that contain waiting",
};
