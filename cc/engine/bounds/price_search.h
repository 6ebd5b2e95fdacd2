// Prices for work and memory that prove a high lower bound (`load_bound.h` says how).
//
// They are the dual variables of the linear program "split every unit over the kinds of devices
// that it allows such that the largest load of a kind, divided by its slots, is least and the bytes
// kept by a kind fit its memory". The dual is concave in few variables, one or two per kind, and is
// maximised in floating point (`ellipsoid.h`). Any prices are valid, so nothing here needs a proof;
// pins to single devices of a kind are not seen here but by forced sets.

#ifndef HPLACER_ENGINE_BOUNDS_PRICE_SEARCH_H_
#define HPLACER_ENGINE_BOUNDS_PRICE_SEARCH_H_

#include <cstdint>
#include <vector>

#include "engine/bounds/device_classes.h"
#include "engine/problem/problem.h"

namespace hplacer {

// In one arbitrary unit of money.
struct Prices {
  std::vector<int64_t> per_ns;    // [classes], in 0..2^32
  std::vector<int64_t> per_byte;  // [classes], in 0..2^56
};

enum class Memory { kFree, kPriced };

// With kPriced, kinds whose memory could hold all units that they may get still have it for free.
// There must be a device, and every unit must allow one. Equal inputs give equal prices.
Prices SearchPrices(const Problem& problem, const DeviceClasses& classes, Memory memory);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_PRICE_SEARCH_H_
