// How other bindings change what sections do.
#pragma once

#include "module.hpp"

namespace otel_straggler::bindings {

// Whether it is a SectionTimer.
bool is_section(PyObject* object);

// From now on one in `every` executions of the sections that are sampled is timed; false for 0.
bool set_sampling(unsigned every);

}  // namespace otel_straggler::bindings
