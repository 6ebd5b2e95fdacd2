// C++ streams over Python's binary file objects.
//
//   InputBuffer buffer(file);      // file: has readinto(buffer)
//   std::istream input(&buffer);
//
// Both may be used without the GIL, which they take for each megabyte; exceptions of the file pass
// through as py::error_already_set. Reading lets Python see signals, so that Ctrl-C ends a long
// read. Assumption: write(bytes) writes everything, as buffered files do.

#ifndef HPLACER_PYTHON_ENGINE_STREAMS_H_
#define HPLACER_PYTHON_ENGINE_STREAMS_H_

#include <pybind11/pybind11.h>

#include <streambuf>
#include <utility>
#include <vector>

namespace hplacer {

class InputBuffer final : public std::streambuf {
 public:
  explicit InputBuffer(pybind11::object file) : file_(std::move(file)), chunk_(kChunkBytes) {}

 protected:
  int_type underflow() override {
    const pybind11::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    const auto view = pybind11::memoryview::from_memory(
        chunk_.data(), static_cast<pybind11::ssize_t>(chunk_.size()));
    const auto size = file_.attr("readinto")(view).cast<pybind11::ssize_t>();
    if (size <= 0) return traits_type::eof();
    setg(chunk_.data(), chunk_.data(), chunk_.data() + size);
    return traits_type::to_int_type(chunk_[0]);
  }

 private:
  static constexpr size_t kChunkBytes = 1 << 20;
  pybind11::object file_;
  std::vector<char> chunk_;
};

class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(pybind11::object file) : file_(std::move(file)), chunk_(kChunkBytes) {
    setp(chunk_.data(), chunk_.data() + chunk_.size());
  }

 protected:
  int_type overflow(int_type character) override {
    sync();
    return character == traits_type::eof() ? 0 : sputc(traits_type::to_char_type(character));
  }

  int sync() override {
    const pybind11::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    file_.attr("write")(pybind11::bytes(pbase(), static_cast<size_t>(pptr() - pbase())));
    setp(chunk_.data(), chunk_.data() + chunk_.size());
    return 0;
  }

 private:
  static constexpr size_t kChunkBytes = 1 << 20;
  pybind11::object file_;
  std::vector<char> chunk_;
};

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_STREAMS_H_
