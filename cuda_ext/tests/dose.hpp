// How much a test makes up.
#pragma once

#include <cstdlib>

// Those that are asked for (`make fuzz`: FUZZ_INPUTS=1000000), or as many as CI has time for. TSan
// looks for races, and what one thread does alone races with nothing: there a tenth shows that it runs.
inline long inputs_of_one_thread(long usual) {
  const char* const wanted = std::getenv("FUZZ_INPUTS");
  if (wanted != nullptr) return std::atol(wanted);
#ifdef __SANITIZE_THREAD__
  return usual / 10;
#else
  return usual;
#endif
}
