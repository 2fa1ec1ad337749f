// What the bindings of the encoder and the exporter share.
#pragma once

#include "module.hpp"

#include <memory>

#include "otel_straggler/exporter.hpp"

namespace otel_straggler::bindings {

// The encoder behind a SpanEncoder; null with an exception set if it is none.
std::shared_ptr<SharedEncoder> encoder_of(PyObject* object);

}  // namespace otel_straggler::bindings
