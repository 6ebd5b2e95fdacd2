#include "engine_json_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "engine/problem/problem.h"

namespace hplacer {
namespace {

using nlohmann::json;

constexpr std::string_view kFormatKey = "format";
constexpr int64_t kMaxTokenBytes = 1 << 20;
constexpr int64_t kMaxDepth = 1000;
constexpr size_t kMaxMessageBytes = 400;

// As Python spells them, whose users read these messages.
const char* TypeName(JsonRule::Type type) {
  switch (type) {
    case JsonRule::kNull:
      return "null";
    case JsonRule::kBool:
      return "bool";
    case JsonRule::kInteger:
      return "int";
    case JsonRule::kFloat:
      return "float";
    case JsonRule::kString:
      return "str";
    case JsonRule::kList:
      return "list";
    case JsonRule::kObject:
      break;
  }
  return "dict";
}

}  // namespace

// Forwards a stream and refuses tokens that would fill the memory: the parser keeps all that it has
// read since the last event, white space too.
class JsonReader::Input final : public std::streambuf {
 public:
  explicit Input(std::streambuf* source) : source_(source) {}

  void ForgetToken() { token_bytes_ = 0; }

 protected:
  int_type underflow() override {
    if (token_bytes_ > kMaxTokenBytes) {
      throw ProblemError("not JSON: a string, a number or white space of more than " +
                         std::to_string(kMaxTokenBytes) + " bytes");
    }
    const std::streamsize size = source_->sgetn(buffer_, sizeof(buffer_));
    if (size <= 0) return traits_type::eof();
    token_bytes_ += size;
    setg(buffer_, buffer_, buffer_ + size);
    return traits_type::to_int_type(*buffer_);
  }

 private:
  std::streambuf* source_;
  int64_t token_bytes_ = 0;
  char buffer_[1 << 16];
};

// The SAX handler. An error found before the format is known waits for the key "format": nothing
// else is looked at until then.
class JsonReader::Events {
 public:
  Events(JsonReader* reader, Input* input) : reader_(reader), input_(input) {}

  bool null() {
    return Handle([&] { reader_->Null(); });
  }
  bool boolean(bool) {
    return Handle([&] { reader_->Boolean(); });
  }
  bool number_integer(json::number_integer_t value) {
    return Handle([&] { reader_->Negative(value); });
  }
  bool number_unsigned(json::number_unsigned_t value) {
    return Handle([&] { reader_->Unsigned(value); });
  }
  bool number_float(json::number_float_t, const std::string& text) {
    return Handle([&] { reader_->BigNumber(text); });
  }
  bool string(std::string& text) {
    return Handle([&] { reader_->String(&text); });
  }
  bool binary(json::binary_t&) { return false; }  // never in text
  bool start_object(size_t) { return Start(JsonRule::kObject); }
  bool start_array(size_t) { return Start(JsonRule::kList); }
  bool end_object() { return Finish(); }
  bool end_array() { return Finish(); }

  bool key(std::string& key) {
    if (nesting_ == 1 && key == kFormatKey) {
      format_seen_ = true;
      if (!error_.empty()) {
        reader_->Key(key);
        return true;
      }
    }
    return Handle([&] { reader_->Key(key); });
  }

  bool parse_error(size_t, const std::string& token, const json::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      Handle([&] { reader_->BigNumber(token); });
      throw ProblemError(error_);  // the parser cannot go on
    }
    std::string message = error.what();
    const size_t prefix = message.find("] ");  // "[json.exception.parse_error.101] "
    if (prefix != std::string::npos) message.erase(0, prefix + 2);
    if (message.size() > kMaxMessageBytes) message = message.substr(0, kMaxMessageBytes) + "...";
    throw ProblemError("not JSON: " + message);
  }

  void CheckEnd() const {
    if (!format_seen_) {
      throw ProblemError("format: is missing; a problem file says '" +
                         reader_->Format(reader_->newest_) + "' there");
    }
  }

 private:
  template <typename Event>
  bool Handle(Event event) {
    input_->ForgetToken();
    if (error_.empty()) {
      try {
        event();
      } catch (const ProblemError& error) {
        if (format_seen_ || nesting_ == 0) throw;
        error_ = error.what();
        reader_->depth_ = 1;
      }
    } else if (format_seen_) {
      event();  // the value of "format", which may be the better reason
      throw ProblemError(error_);
    }
    return true;
  }

  bool Start(JsonRule::Type type) {
    Handle([&] { reader_->Begin(type); });
    if (++nesting_ > kMaxDepth) throw ProblemError("not a problem: nested too deeply");
    return true;
  }

  bool Finish() {
    Handle([&] { reader_->End(); });
    --nesting_;
    return true;
  }

  JsonReader* reader_;
  Input* input_;
  int64_t nesting_ = 0;
  bool format_seen_ = false;
  std::string error_;
};

void JsonReader::Read(std::istream* input) {
  Input bounded(input->rdbuf());
  std::istream stream(&bounded);
  Events events(this, &bounded);
  json::sax_parse(stream, &events);
  // The parser takes a zero byte for the end of its input.
  if (!stream.eof()) throw ProblemError("not JSON: a zero byte after the document");
  events.CheckEnd();
}

void JsonReader::Fail(const std::string& message, const char* field) const {
  std::string path = Path();
  if (*field != '\0') path += path.empty() ? field : std::string(".") + field;
  throw ProblemError(path.empty() ? message : path + ": " + message);
}

std::string JsonReader::Path() const {
  std::string path;
  for (size_t i = 0; i < depth_; ++i) {
    const Frame& frame = frames_[i];
    if (schema_[frame.slot].types & JsonRule::kList) {
      path += "[" + std::to_string(frame.count - 1) + "]";
    } else {
      if (!path.empty()) path += '.';
      path += frame.key;
    }
  }
  return path;
}

// Returns the slot of a value that begins, once its type is known to fit.
int JsonReader::Enter(JsonRule::Type type) {
  int slot = 0;
  if (depth_ > 0) {
    Frame& frame = top();
    slot = frame.value_slot;
    ++frame.count;
  }
  const JsonRule& rule = schema_[slot];
  if ((rule.types & type) == 0) {
    Fail(std::string("expected ") + rule.expected + ", got " + TypeName(type));
  }
  return slot;
}

void JsonReader::Null() { OnNull(Enter(JsonRule::kNull)); }

void JsonReader::Boolean() { Enter(JsonRule::kBool); }

void JsonReader::Unsigned(uint64_t value) {
  const int slot = Enter(JsonRule::kInteger);
  const JsonRule& rule = schema_[slot];
  if (value > static_cast<uint64_t>(rule.maximum)) {
    Fail("must be at most " + std::to_string(rule.maximum) + ", got a larger integer");
  }
  const auto integer = static_cast<int64_t>(value);
  if (integer < rule.minimum) {
    Fail("must be at least " + std::to_string(rule.minimum) + ", got " + std::to_string(integer));
  }
  OnInteger(slot, integer);
}

void JsonReader::Negative(int64_t value) {
  if (value == 0) return Unsigned(0);  // written as -0
  const JsonRule& rule = schema_[Enter(JsonRule::kInteger)];
  Fail("must be at least " + std::to_string(rule.minimum) + ", got " + std::to_string(value));
}

// A number with a point or an exponent, or an integer beyond 64 bits.
void JsonReader::BigNumber(const std::string& text) {
  if (text.find_first_not_of("-0123456789") != std::string::npos) {
    Enter(JsonRule::kFloat);
    return;
  }
  if (text[0] != '-') return Unsigned(std::numeric_limits<uint64_t>::max());
  const JsonRule& rule = schema_[Enter(JsonRule::kInteger)];
  Fail("must be at least " + std::to_string(rule.minimum) + ", got a smaller integer");
}

void JsonReader::String(std::string* text) {
  const int slot = Enter(JsonRule::kString);
  if (depth_ == 1 && top().key == kFormatKey) return CheckFormat(*text);
  OnString(slot, text);
}

void JsonReader::Begin(JsonRule::Type type) {
  const int slot = Enter(type);
  if (depth_ == frames_.size()) frames_.emplace_back();
  ++depth_;
  top().slot = slot;
  top().value_slot = schema_[slot].element;
  top().count = 0;
  top().seen = 0;
}

void JsonReader::Key(const std::string& key) {
  Frame& frame = top();
  frame.key = key;
  const JsonRule& rule = schema_[frame.slot];
  if (rule.element >= 0) return OnKey(frame.slot, key);
  const int version = version_ > 0 ? version_ : newest_;
  const auto field = std::find_if(rule.fields.begin(), rule.fields.end(), [&](const auto& f) {
    return f.key == key && f.since <= version;
  });
  if (field == rule.fields.end()) Fail(UnknownKey(rule, version));
  for (int older = 1; version_ == 0 && older < field->since; ++older) {
    std::string& error = later_key_error_[older];
    if (error.empty()) error = Path() + ": " + UnknownKey(rule, older);
  }
  const uint32_t bit = uint32_t{1} << (field - rule.fields.begin());
  if (frame.seen & bit) Fail("the key is given twice");
  frame.seen |= bit;
  frame.value_slot = field->slot;
}

void JsonReader::End() {
  Frame& frame = top();
  const JsonRule& rule = schema_[frame.slot];
  for (size_t i = 0; i < rule.fields.size(); ++i) {
    if (!rule.fields[i].required || (frame.seen >> i & 1) != 0) continue;
    frame.key = rule.fields[i].key;
    Fail("is missing");
  }
  --depth_;
  OnEnd(frame.slot, frame.count);
}

std::string JsonReader::UnknownKey(const JsonRule& rule, int version) const {
  std::string message = "unknown key; the keys here are ";
  for (const JsonRule::Field& field : rule.fields) {
    if (field.since > version) continue;
    if (&field != &rule.fields.front()) message += ", ";
    message += field.key;
  }
  return message;
}

std::string JsonReader::Format(int version) const {
  return std::string(format_name_) + "/" + std::to_string(version);
}

void JsonReader::CheckFormat(const std::string& format) {
  for (version_ = newest_; version_ > 0 && format != Format(version_);) --version_;
  if (version_ > 0) {
    if (!later_key_error_[version_].empty()) throw ProblemError(later_key_error_[version_]);
    return;
  }
  const std::string newest = Format(newest_);
  if (format.rfind(std::string(format_name_) + "/", 0) == 0) {
    Fail("'" + format + "' is not supported, this version reads up to '" + newest +
         "'; upgrade it");
  }
  Fail("'" + format + "' is not a problem file's format, expected '" + newest + "'");
}

}  // namespace hplacer
