// A strict streaming reader of JSON documents of one known shape.
//
// The shape is a table of rules, one per *slot* (a place where values stand: the document, a list
// of ops, an op, its name). The reader checks each value against the rule of its slot, and each
// object for unknown, repeated and missing keys; a derived class receives what passed. There is no
// document tree and no recursion: memory is that of one value.
//
//   std::istream --nlohmann-json (SAX)--> JsonReader: rules, paths --> derived class: arrays
//
// Assumptions: the document is an object whose key "format" names its format and version. A wrong
// format is reported rather than what is wrong because of it, wherever the key stands. A key that
// came with a later version than the document's is unknown.
//
// Bounds, so that no file exhausts memory: a string, a number or a run of white space is shorter
// than 1 MiB. Errors are ProblemErrors that start with the path of the faulty field, or with
// "not JSON" and the line and column.
//
// Source of the JSON parser: https://json.nlohmann.me/features/parsing/sax_interface/

#ifndef HPLACER_PYTHON_ENGINE_JSON_READER_H_
#define HPLACER_PYTHON_ENGINE_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace hplacer {

// What may stand in one slot.
struct JsonRule {
  enum Type {
    kNull = 1,
    kBool = 2,
    kInteger = 4,
    kFloat = 8,
    kString = 16,
    kList = 32,
    kObject = 64
  };
  struct Field {
    std::string_view key;
    int slot;
    bool required;
    int since = 1;  // the first version of the format that has it
  };

  int types;             // the union of the types that may stand here
  const char* expected;  // these types in words: "a string"
  int64_t minimum = 0, maximum = std::numeric_limits<int64_t>::max();  // of an integer
  int element = -1;  // slot of a list's elements, or of the values of an object with any keys
  std::vector<Field> fields = {};  // of an object with known keys, at most 32
};

class JsonReader {
 public:
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  // Reads one document, up to the end of `input`. Throws ProblemError, and whatever `input` throws.
  void Read(std::istream* input);

 protected:
  // The document stands in slot 0; its format is `name`/1 up to `name`/`newest`. `schema` must
  // outlive the reader.
  JsonReader(const std::vector<JsonRule>& schema, std::string_view name, int newest)
      : schema_(schema), format_name_(name), newest_(newest), later_key_error_(newest + 1) {}
  ~JsonReader() = default;

  virtual void OnNull(int slot) = 0;
  virtual void OnInteger(int slot, int64_t value) = 0;
  virtual void OnString(int slot, std::string* text) = 0;    // may be moved from
  virtual void OnKey(int slot, const std::string& key) = 0;  // of an object with any keys
  // A list or an object ended; `count` is the number of its elements or keys.
  virtual void OnEnd(int slot, int64_t count) = 0;

  // Throws ProblemError with the path of the current value, or of its field `field`.
  [[noreturn]] void Fail(const std::string& message, const char* field = "") const;

 private:
  class Input;
  class Events;

  // An object or a list that has begun.
  struct Frame {
    int slot;
    int value_slot;   // of the current value
    int64_t count;    // values so far
    uint32_t seen;    // known keys so far, a bit per field
    std::string key;  // of the current value in an object
  };

  int Enter(JsonRule::Type type);
  void Null();
  void Boolean();
  void Unsigned(uint64_t value);
  void Negative(int64_t value);
  void BigNumber(const std::string& text);
  void String(std::string* text);
  void Begin(JsonRule::Type type);
  void Key(const std::string& key);
  void End();
  void CheckFormat(const std::string& format);
  std::string Format(int version) const;
  std::string UnknownKey(const JsonRule& rule, int version) const;
  std::string Path() const;
  Frame& top() { return frames_[depth_ - 1]; }

  const std::vector<JsonRule>& schema_;
  const std::string_view format_name_;
  const int newest_;
  int version_ = 0;  // of the document, 0 until it is known
  // [newest + 1] while the version is unknown: the error that a first key makes if it is that one.
  std::vector<std::string> later_key_error_;
  // The first `depth_` are in use, the others keep the memory of their keys.
  std::vector<Frame> frames_;
  size_t depth_ = 0;
};

}  // namespace hplacer

#endif  // HPLACER_PYTHON_ENGINE_JSON_READER_H_
