// The layout of a record, so that Python can check what it was built against.
#include "module.hpp"

#include "otel_straggler/record.hpp"

namespace otel_straggler::bindings {

bool add_record(PyObject* module) {
  return PyModule_AddIntConstant(module, "RECORD_VERSION", kRecordVersion) == 0 &&
         PyModule_AddIntConstant(module, "RECORD_BYTES", sizeof(Record)) == 0;
}

}  // namespace otel_straggler::bindings
