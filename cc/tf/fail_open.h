// Keeps exceptions from TensorFlow, which expects none of what it calls.
#ifndef HPLACER_TF_FAIL_OPEN_H_
#define HPLACER_TF_FAIL_OPEN_H_

#include <cxxabi.h>

#include <exception>
#include <string>

namespace hplacer {

// Runs `body`; what it threw, in words, or "". Not even a lack of memory gets through; the end of
// a thread does.
template <typename Body>
std::string WhatFails(const Body& body) {
  const auto words = [](const char* what) {
    try {
      return std::string(what);
    } catch (...) {
      return std::string("no memory");  // short: it needs none
    }
  };
  try {
    body();
    return {};
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    return words(error.what());
  } catch (...) {
    return words("an exception of an unknown type");
  }
}

}  // namespace hplacer

#endif  // HPLACER_TF_FAIL_OPEN_H_
