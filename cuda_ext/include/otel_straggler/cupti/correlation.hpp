// Correlation ids are 32 bits wide and start again at 0 after a day of busy launching.
#pragma once

#include <cstdint>

namespace otel_straggler::cupti {

// As if ids had never started again: counted from far above 0, so that older ones have a place too.
using WideId = std::uint64_t;
inline constexpr WideId kFirstWideId = std::uint64_t{1} << 32;

// The one nearest to `base` that ends in `id`.
inline WideId widen_near(WideId base, std::uint32_t id) {
  const auto distance = static_cast<std::int32_t>(id - static_cast<std::uint32_t>(base));
  return base + static_cast<WideId>(static_cast<std::int64_t>(distance));
}

// The next one after `base` that ends in `id`.
inline WideId widen_after(WideId base, std::uint32_t id) {
  return base + static_cast<std::uint32_t>(id - static_cast<std::uint32_t>(base));
}

}  // namespace otel_straggler::cupti
