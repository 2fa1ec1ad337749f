// Sends spans and section times of several ranks with OpenTelemetry's JavaScript SDK.
//
// node send.mjs FORM URL none|gzip < run.json
//
// FORM is json, protobuf or grpc; run.json has for every rank its resource, spans and times:
// [{"resource": {}, "spans": [{"name", "start": [s, ns], "end": [s, ns], "attributes": {}}],
//   "times": [[[seconds, attributes], ...], ...]}, ...]; every list of times is one export.
import { readFileSync } from "node:fs";
import { OTLPMetricExporter as MetricGrpc } from "@opentelemetry/exporter-metrics-otlp-grpc";
import { OTLPMetricExporter as MetricJson } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPMetricExporter as MetricProto } from "@opentelemetry/exporter-metrics-otlp-proto";
import { OTLPTraceExporter as TraceGrpc } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as TraceJson } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as TraceProto } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AggregationType, MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const [form, url, compression] = process.argv.slice(2);
const trace = { json: TraceJson, protobuf: TraceProto, grpc: TraceGrpc }[form];
const metric = { json: MetricJson, protobuf: MetricProto, grpc: MetricGrpc }[form];
const target = (signal) => ({ url: form === "grpc" ? url : `${url}/v1/${signal}`, compression });

async function sendSpans(resource, spans) {
  const provider = new BasicTracerProvider({
    resource,
    spanProcessors: [new BatchSpanProcessor(new trace(target("traces")))],
  });
  const tracer = provider.getTracer("of.somebody.else");
  for (const { name, start, end, attributes } of spans) {
    tracer.startSpan(name, { startTime: start, attributes, root: true }).end(end);
    await new Promise((resolve) => setImmediate(resolve)); // lets the processor send
  }
  await provider.shutdown();
}

async function sendTimes(resource, exports) {
  const reader = new PeriodicExportingMetricReader({
    exporter: new metric(target("metrics")),
    exportIntervalMillis: 3_600_000,
    exportTimeoutMillis: 20_000,
  });
  const provider = new MeterProvider({
    resource,
    readers: [reader],
    views: [
      {
        instrumentName: "straggler.section.duration",
        aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM },
      },
    ],
  });
  const meter = provider.getMeter("of.somebody.else");
  const histogram = meter.createHistogram("straggler.section.duration", { unit: "s" });
  for (const times of exports) {
    for (const [seconds, attributes] of times) histogram.record(seconds, attributes);
    await provider.forceFlush();
  }
  await reader.shutdown();
}

const run = JSON.parse(readFileSync(0, "utf8"));
await Promise.all(
  run.map(async ({ resource, spans, times }) => {
    const who = resourceFromAttributes(resource);
    if (spans) await sendSpans(who, spans);
    if (times) await sendTimes(who, times);
  }),
);
